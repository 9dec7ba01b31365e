"""Random load on one engine in this process for a long time: memory must stay as it is.

Run as `python -m benchmarks.llm.engine_soak [--minutes 30] [--scripted]`. Prompts of all lengths, half of them alike,
fill and turn over the cache; callers leave, deadlines pass. Resident memory is looked at throughout: the last
quarter's median may be 2 % above the second's. Everything must add up at the end. `--scripted` takes a model that costs
nothing. `benchmarks.llm.soak` does the like to a whole mesh.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import time
from collections.abc import Callable

import psutil

from benchmarks.llm.canaries import open_model
from benchmarks.llm.engine_callers import Call, EngineSums, idle, running
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.drivers.engine import Engine
from services.worker.llm.ports.language_model import LanguageModel
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity, scripted_model

_AT_ONCE = 24
_LOOKS = 200  # at the memory, in all
_ALLOWED = 1.02
_BLOCKS_BYTES = 96 * 1024**2


def _request(numbers: random.Random, vocabulary: int) -> GenerationRequest:
    stem = random.Random(numbers.randrange(50) if numbers.random() < 0.5 else numbers.random())
    length = int(numbers.paretovariate(0.8) * 12) % 380 + 1
    settings = SamplingSettings(
        max_tokens=numbers.randrange(1, 40),
        temperature=numbers.choice((0.0, 0.8)),
        top_p=numbers.choice((1.0, 0.9)),
        stop=numbers.choice(((), ("\n\n",))),
        n=numbers.choice((1, 1, 1, 2)),
        logprobs=numbers.random() < 0.1,
    )
    now = time.monotonic()
    return GenerationRequest(
        prompt=tuple(stem.randrange(1, vocabulary) for _ in range(length)),
        sampling=settings,
        tenant=f"tenant {numbers.randrange(1000)}",
        priority=numbers.randrange(-1, 2),
        deadline=now + numbers.uniform(0, 5) if numbers.random() < 0.1 else None,
    )


class Soak:
    """Callers for a while, and what the memory was meanwhile."""

    def __init__(self, model: LanguageModel, seconds: float) -> None:
        self.resident: list[int] = []
        self.calls = 0
        self._model = model
        self._seconds = seconds
        self._numbers = random.Random(1)

    async def run(self) -> EngineSums:
        """Until the time is over and everything has ended."""
        end = time.monotonic() + self._seconds
        async with running(self._model, EngineSettings(max_queue_requests=4096)) as (engine, sums):
            looking = asyncio.create_task(self._look(psutil.Process().memory_info))
            callers = [self._caller(engine, end) for _ in range(_AT_ONCE)]
            await asyncio.gather(*callers)
            looking.cancel()
            await idle(engine, sums, self.calls)
        return sums

    async def _caller(self, engine: Engine, end: float) -> None:
        numbers = self._numbers
        while time.monotonic() < end:
            self.calls += 1
            leaves = numbers.uniform(0, 1) if numbers.random() < 0.2 else None
            request = _request(numbers, self._model.tokenizer.vocabulary_size)
            call = await Call(request).made(engine, leave_after=leaves)
            assert not call.told_late, "told after the end"

    async def _look(self, memory: Callable[[], psutil._ntuples.pmem]) -> None:
        while True:
            await asyncio.sleep(self._seconds / _LOOKS)
            gc.collect()
            self.resident.append(memory().rss)


def growth(resident: list[int]) -> float:
    """The last quarter's median by the second quarter's: until then caches fill."""
    quarter = len(resident) // 4
    return statistics.median(resident[-quarter:]) / statistics.median(
        resident[quarter : 2 * quarter]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--scripted", action="store_true")
    options = parser.parse_args()
    scripted = ScriptedRunner(capacity(96, 16, max_blocks=40))
    model = scripted_model(scripted) if options.scripted else open_model(_BLOCKS_BYTES)
    soak = Soak(model, options.minutes * 60)
    sums = asyncio.run(soak.run())
    model.runner.close()
    by_outcome = {kind.value if kind else "whole": n for kind, n in sums.outcomes.items()}
    print(f"{soak.calls} calls, {sums.tokens} tokens, {sums.preemptions} preemptions: {by_outcome}")
    if not options.scripted:
        own = sums.own_seconds / sums.runner_seconds
        print(f"scheduling, sampling and text: {own:.1%} of the runner's time")
    grown = growth(soak.resident)
    print(f"resident memory: {soak.resident[-1] / 2**20:.0f} MiB, {grown:.4f} times what it was")
    assert grown < _ALLOWED, "memory grows"


if __name__ == "__main__":
    main()
