"""The cost of one step by graph and batch, without scheduler or server: `python -m benchmarks.llm.step [GGUF]`.

Prints milliseconds of a step in which so many requests go on by one token each, tokens a second of prompts, and how
many times faster the first target is than the second. Requests' blocks lie in random order, as in a cache in use.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from services.worker.llm.adapters import operators
from services.worker.llm.adapters.graph_files import read_facts, write_graph
from services.worker.llm.adapters.graph_runner import open_runner
from services.worker.llm.adapters.graph_session import SessionSettings, cpus
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.step import Array, StepInput
from services.worker.llm.ports.runner import Runner

_STEPS = 30
_PROMPTS = 4
_ROOM = 64  # tokens that requests grow by while they are timed


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds by batch, tokens a second by length of prompt."""

    step_ms: dict[int, float]
    prompt_rate: dict[int, float]


class Bench:
    """One runner; blocks of requests in random order."""

    def __init__(self, runner: Runner, requests: int) -> None:
        capacity = runner.capacity
        order = np.random.default_rng(0)
        self._runner = runner
        self._order = order
        ids = np.arange(requests) if capacity.slots else order.permutation(capacity.blocks)
        self._blocks = ids[: requests * capacity.max_blocks].reshape(requests, -1).astype(np.int32)

    def going_on(self, requests: int, past: int) -> float:
        """Seconds of a step of so many requests with so many tokens each."""
        starts = np.arange(requests + 1)
        return self._timed(starts, np.full(requests, past), np.arange(requests))

    def prompt(self, tokens: int) -> float:
        """Seconds of a step of one prompt."""
        return self._timed(np.array([0, tokens]), np.array([0]), np.array([tokens - 1]))

    def _timed(self, starts: Array, past: Array, rows: Array) -> float:
        size = self._runner.capacity.vocabulary_size
        step = StepInput(
            ids=self._order.integers(0, size, starts[-1]),
            starts=starts.astype(np.int32),
            past=past.astype(np.int32),
            blocks=self._blocks[: len(past)],
            rows=rows.astype(np.int64),
        )
        began = time.perf_counter()
        self._runner.step(step)
        return time.perf_counter() - began


def timing(runner: Runner, past: int, batches: Sequence[int], prompts: Sequence[int]) -> Timing:
    """Medians of steps, the best of prompts."""
    bench = Bench(runner, max(batches))
    # Prompts first: what requests look back on is then there, and the memory for it is taken.
    rates = {}
    for tokens in prompts:
        rates[tokens] = tokens / min(bench.prompt(tokens) for _ in range(_PROMPTS))
    steps = {}
    for requests in batches:
        seconds = [bench.going_on(requests, past + i % _ROOM) for i in range(_STEPS)]
        steps[requests] = 1000 * statistics.median(seconds[_STEPS // 10 :])
    return Timing(steps, rates)


def main() -> None:
    """Read the arguments, time, print."""
    given = _parser().parse_args()
    file = given.file
    if file is None:
        from benchmarks.llm.model_files import ModelFiles

        file = ModelFiles(Path.home() / ".cache/inferplane/benchmarks/llm").original()
    timings = {name: _timing_of(file, Target(name), given) for name in given.targets}
    for name, timed in timings.items():
        steps = "  ".join(f"{n}: {ms:.2f}" for n, ms in timed.step_ms.items())
        print(f"{name:9} ms a step, {given.past} tokens each, by requests   {steps}")
        rates = "  ".join(f"{n}: {rate:.0f}" for n, rate in timed.prompt_rate.items())
        print(f"{name:9} tokens/s of prompts, by length              {rates}")
    if len(timings) > 1:
        first, second = (timings[name] for name in given.targets[:2])
        ratios = (f"{n}: {second.step_ms[n] / ms:.2f}" for n, ms in first.step_ms.items())
        print(f"{given.targets[0]} is so many times faster   {'  '.join(ratios)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.llm.step", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="a GGUF file; SmolLM2 if left out")
    parser.add_argument("--targets", type=_names, default=["native", "portable"])
    parser.add_argument("--threads", type=int, default=cpus())
    parser.add_argument("--past", type=int, default=256, help="tokens in the cache")
    parser.add_argument("--batches", type=_numbers, default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--prompts", type=_numbers, default=[128, 512])
    return parser


def _timing_of(file: Path, target: Target, given: argparse.Namespace) -> Timing:
    context = max(given.past + _ROOM, *given.prompts)
    settings = EngineSettings(
        max_running_requests=max(given.batches),
        context_length=context,
        kv_cache_bytes=8 * 1024**3,  # of addresses: memory is taken as it is used
    )
    session = SessionSettings(
        threads=given.threads,
        operators=operators.library() if target is Target.NATIVE else None,
    )
    with tempfile.TemporaryDirectory(prefix="ip-step-") as name:
        write_graph(file, Path(name), target)
        facts = read_facts(Path(name))
        assert facts is not None, "just written"
        runner = open_runner(Path(name), facts, settings, session)
        try:
            return timing(runner, given.past, given.batches, given.prompts)
        finally:
            runner.close()


def _names(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


if __name__ == "__main__":
    main()
