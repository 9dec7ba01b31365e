"""Requests of unlike lengths through the batcher alone: which layout computes MiniLM's embeddings fastest here.

Run as `python -m benchmarks.ragged`. Closed loop in one process, no network: sentences of 8 to 128 tokens, one a
request, every answer compared with the model's own. Layouts take turns in short rounds, since other work on the
machine disturbs each of them alike; the best round of each is told, with the CPU time that it took.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.run_sums import RunSums
from services.cli.demo import minilm
from services.rpc.errors import InferplaneError
from services.worker.adapters.onnx_runtime import onnxruntime
from services.worker.domain.assignment import PaddedInput, RunSettings
from services.worker.domain.batch import Answer, BatchLimits, BatchQueue
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.ragged import Padding
from services.worker.domain.signature import Signature, spec_of
from services.worker.drivers.batcher import Batcher, Model

REQUESTS = 64
SHORTEST, LONGEST = 8, 128  # tokens
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OUTPUT = "sentence_embedding"
SIGNATURE = Signature(
    tuple(spec_of(name, "INT64", (-1, -1)) for name in _INPUTS),
    (spec_of(_OUTPUT, "FP32", (-1, minilm.WIDTH)),),
)
SETTINGS = RunSettings(
    padded_inputs=(
        PaddedInput("input_ids", 1),
        PaddedInput("attention_mask", 1, mask=True),
        PaddedInput("token_type_ids", 1),
    )
)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the model is run."""

    instances: int
    threads: int
    max_rows: int  # 1: no batches

    def __str__(self) -> str:
        batches = f"batches up to {self.max_rows}" if self.max_rows > 1 else "single rows"
        return f"{self.instances} x {self.threads} threads, {batches}"


LAYOUTS = (
    Layout(1, 1, 1),
    Layout(1, 2, 1),
    Layout(2, 1, 1),
    Layout(1, 2, 32),
    Layout(2, 1, 32),
    Layout(2, 2, 32),
)


class RawSession:
    """The runtime's session as a port."""

    def __init__(self, path: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Compute."""
        return dict(zip(outputs, self._session.run(list(outputs), feeds), strict=True))


@dataclass(frozen=True, slots=True)
class Round:
    """What one layout did in one round."""

    rate: float  # answers a second
    cpu: float  # seconds of the process for each
    rows: float  # of a run
    waste: float  # part of the cells that was padding


def sentences() -> list[dict[str, Array]]:
    """Lengths as texts have them: many short, few long."""
    random = np.random.default_rng(7)
    lengths = np.clip(np.exp(random.normal(np.log(28), 0.6, REQUESTS)), SHORTEST, LONGEST)
    lengths[0], lengths[1] = SHORTEST, LONGEST
    made = []
    for length in lengths.astype(int):
        tokens = random.integers(1000, 20000, (1, length))
        made.append(
            {
                "input_ids": tokens,
                "attention_mask": np.ones_like(tokens),
                "token_type_ids": np.zeros_like(tokens),
            }
        )
    return made


class Closed:
    """So many callers, each asks again when it is answered."""

    def __init__(
        self, batcher: Batcher, given: Sequence[dict[str, Array]], right: Sequence[Array]
    ) -> None:
        self._batcher = batcher
        self._given = given
        self._right = right
        self._next = 0
        self._done: asyncio.Future[None] | None = None
        self.answers = 0
        self.wrong = 0

    async def keep(self, in_flight: int, seconds: float) -> None:
        """Ask for that long; what is on its way then is not counted."""
        self._done = asyncio.get_running_loop().create_future()
        for _ in range(in_flight):
            self._ask()
        await asyncio.sleep(seconds)
        done, self._done = self._done, None
        done.cancel()

    def _ask(self) -> None:
        index = self._next % len(self._given)
        self._next += 1
        request = InferRequest(self._given[index], (_OUTPUT,))

        def deliver(answer: Answer) -> None:
            if self._done is None:
                return
            if isinstance(answer, InferplaneError):
                raise answer
            # int8 products are scaled by each run's largest value, so padding moves an answer a little.
            near = float((answer[_OUTPUT] * self._right[index]).sum())
            self.wrong += near < 0.99
            self.answers += 1
            self._ask()

        self._batcher.admit(request, None, deliver)


async def round_of(
    layout: Layout, sessions: Sequence[RawSession], load: tuple[int, float]
) -> Round:
    """One round."""
    given = sentences()
    right = [sessions[0].run(feeds, [_OUTPUT])[_OUTPUT] for feeds in given]
    batched = layout.max_rows > 1
    padding = Padding.of(SIGNATURE, SETTINGS) if batched else None
    queue = BatchQueue(
        BatchLimits(
            max_rows=layout.max_rows,
            max_queued_rows=4096,
            max_queued_bytes=1 << 30,
            instances=layout.instances,
        ),
        padding,
    )
    meter = RunSums()
    model = Model(
        sessions=sessions,
        signature=SIGNATURE,
        batched=batched,
        padding=padding,
        max_rows=layout.max_rows,
    )
    batcher = Batcher(queue, model, meter)
    running = asyncio.create_task(batcher.run())
    closed = Closed(batcher, given, right)
    await closed.keep(load[0], load[1] / 4)  # learns costs
    closed.answers, before = 0, (time.perf_counter(), time.process_time())
    meter.runs = meter.rows = meter.cells = meter.padded = 0
    await closed.keep(load[0], load[1])
    seconds, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if closed.wrong:
        raise SystemExit(f"{closed.wrong} answers were wrong")
    return Round(
        closed.answers / seconds,
        cpu / max(1, closed.answers),
        meter.rows / max(1, meter.runs),
        meter.padded / max(1, meter.cells),
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 8, 32])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = minilm.export(Path(folder))
        sessions: dict[Layout, list[RawSession]] = {}
        for layout in LAYOUTS:
            count = layout.instances if layout.threads > 1 else 1
            made = [RawSession(path, layout.threads) for _ in range(count)]
            sessions[layout] = made * (layout.instances // count)
        for in_flight in given.in_flight:
            found: dict[Layout, list[Round]] = {layout: [] for layout in LAYOUTS}
            for _ in range(given.rounds):
                for layout in LAYOUTS:
                    done = asyncio.run(
                        round_of(layout, sessions[layout], (in_flight, given.seconds))
                    )
                    found[layout].append(done)
            for layout, rounds in found.items():
                best = max(rounds, key=lambda r: r.rate)
                middle = sorted(r.rate for r in rounds)[len(rounds) // 2]
                print(
                    f"{in_flight:4} in flight, {layout!s:38} best {best.rate:6.0f}/s, middle {middle:6.0f}/s,"
                    f" {min(r.cpu for r in rounds) * 1e3:5.2f} ms CPU, {best.rows:5.1f} rows a run,"
                    f" {best.waste:5.1%} padding",
                    flush=True,
                )
    os._exit(0)


if __name__ == "__main__":
    main()
