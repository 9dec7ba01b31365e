"""More than can be computed: how long the accepted wait, and how soon the others are refused.

Run as `python -m benchmarks.overload`. The batcher in this process, with a device that takes 8 ms for up to eight rows
(it sleeps, so that other work on the machine does not change what it can do: 1,000 rows a second). Requests of one row
are offered at multiples of that, at random times, whether or not earlier ones were answered. Latency counts from the
time at which a request was due. The queue is bounded by time, by the callers' deadlines, or by rows alone, as most
servers do.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import uvloop

from services.rpc.errors import InferplaneError
from services.worker.domain.batch import Answer, BatchLimits, BatchQueue
from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.signature import Signature, spec_of
from services.worker.drivers.batcher import Batcher, Model

_RUN = 0.008  # seconds of a run
_ROWS = 8
_CAPACITY = _ROWS / _RUN
_TICK = 0.001  # seconds between arrivals that come together
SIGNATURE = Signature((spec_of("x", "FP32", (-1,)),), (spec_of("y", "FP32", (-1,)),))


@dataclass(frozen=True, slots=True)
class Bound:
    """How the wait is bounded."""

    name: str
    max_wait: float = 0.0
    deadline: float = 0.0  # seconds that callers wait; 0: for ever


BOUNDS = (
    Bound("at most 1 s", max_wait=1.0),
    Bound("at most 0.1 s", max_wait=0.1),
    Bound("callers that wait 0.2 s", deadline=0.2),
    Bound("4,096 rows alone"),
)


class Device:
    """Computes elsewhere."""

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Takes as long for one row as for eight."""
        time.sleep(_RUN)
        return dict.fromkeys(outputs, feeds["x"])


class Meter:
    """Nobody looks."""

    def computed(self, batch: ComputedBatch) -> None:
        """One run."""

    def watch_queue(self, rows: object, requests: object) -> None:
        """Depths."""


@dataclass(slots=True)
class Point:
    """One rate."""

    begins: float
    ends: float  # when offering ends
    answered: int = 0  # between the two
    waits: list[float] = field(default_factory=list)  # seconds, of the answered
    refusals: list[float] = field(default_factory=list)  # seconds until they were told
    late: int = 0  # accepted, and then told that their deadline has passed

    def line(self, seconds: float) -> str:
        """One line of the table."""
        p50, p99 = np.percentile(self.waits, [50, 99]) * 1e3
        refused = f"{np.percentile(self.refusals, 99) * 1e6:.0f} µs" if self.refusals else "–"
        return (
            f"answered {self.answered / seconds:5.0f}/s, p50 {p50:7.1f} ms, p99 {p99:7.1f} ms;"
            f" refused {len(self.refusals) / seconds:5.0f}/s, 99 % within {refused};"
            f" late {self.late / seconds:4.0f}/s"
        )


async def offer(queue: BatchQueue, bound: Bound, rate: float, seconds: float) -> Point:
    """Requests at random times; those of the first fifth fill the queue and are not counted."""
    started = time.monotonic()
    counted, ends = started + seconds * 0.2, started + seconds * 1.2
    point, unseen, chance = Point(counted, ends), Point(counted, ends), random.Random(7)
    model = Model(sessions=[Device()], signature=SIGNATURE, batched=True, max_rows=_ROWS)
    batcher = Batcher(queue, model, Meter())
    running = asyncio.create_task(batcher.run())
    request = InferRequest({"x": np.ones(1, np.float32)}, ("y",))
    due = started
    while due < ends:
        await asyncio.sleep(max(_TICK, due - time.monotonic()))
        while due <= time.monotonic() and due < ends:
            _ask(batcher, request, due, (bound, point if due > counted else unseen))
            due += chance.expovariate(rate)
    point.answered += unseen.answered
    while len(queue):  # noqa: ASYNC110 - a batcher tells nobody that it is idle
        await asyncio.sleep(_RUN)
    await asyncio.sleep(5 * _RUN)  # the last batch
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return point


def _ask(batcher: Batcher, request: InferRequest, due: float, of: tuple[Bound, Point]) -> None:
    bound, point = of

    def deliver(answer: Answer) -> None:
        if isinstance(answer, InferplaneError):
            point.late += 1
        else:
            now = time.monotonic()
            point.waits.append(now - due)
            point.answered += point.begins <= now <= point.ends

    before = time.perf_counter()
    try:
        batcher.admit(request, due + bound.deadline if bound.deadline else None, deliver)
    except InferplaneError:
        point.refusals.append(time.perf_counter() - before)


async def curve(bound: Bound, offered: Sequence[float], seconds: float) -> None:
    """One bound, all rates."""
    print(f"{bound.name}:", flush=True)
    for times in offered:
        limits = BatchLimits(
            max_rows=_ROWS,
            max_queued_rows=4096,
            max_queued_bytes=1 << 30,
            max_wait=bound.max_wait,
            least_rows=4 * _ROWS,
        )
        point = await offer(BatchQueue(limits), bound, times * _CAPACITY, seconds)
        print(f"  {times:4.2f} x capacity: {point.line(seconds)}", flush=True)


async def measure(offered: Sequence[float], seconds: float) -> None:
    """A curve for each bound."""
    for bound in BOUNDS:
        await curve(bound, offered, seconds)


def main() -> None:
    """Print a curve for each bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--offered", type=float, nargs="+", default=[0.5, 0.8, 1.0, 1.5, 2.0, 3.0])
    given = parser.parse_args()
    uvloop.run(measure(given.offered, given.seconds))


if __name__ == "__main__":
    main()
