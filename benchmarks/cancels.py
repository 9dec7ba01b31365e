"""Many calls that are cancelled at random moments around the time of an answer: nothing of them may stay in the worker.

Run: .venv/bin/python -m benchmarks.cancels [--calls 360000] [--in-flight 128]

Half of the calls are reset between their beginning and twice the usual time of an answer, all on one connection, as
Envoy does it for its clients. The others' answers are compared byte by byte. Then the worker must have counted each
call once, have none in flight, and answer as before. Ends with 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random
import select
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import mlp
from benchmarks.h2_load import Line, Result
from tests.integration.worker import registry_stand_in
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.worker_process import running
from tests.models import artifact

_VERSION = "models/mlp/versions/1"
_ROUNDS = 20  # before the cancels
_LOOK = 0.0005  # seconds between looks at what is to be cancelled


@dataclass(slots=True)
class Sent:
    """What became of the calls, as the client saw it."""

    result: Result
    cancelled: int = 0
    p50: float = 0.0  # seconds of an answer, of calls that nobody cancelled


def send(address: str, calls: int, in_flight: int, seed: int) -> Sent:
    """Keep so many in flight until so many were sent and have ended."""
    line, numbers = Line(address, mlp.exchanges("mlp", "1"), 0), random.Random(seed)
    sent = Sent(_measured(line, in_flight))
    sent.p50 = sent.result.quantile(0.5)
    due: list[tuple[float, int]] = []
    left, stream = calls, line.next_stream
    left -= line.begin(in_flight)
    while line.open:
        now = time.perf_counter()
        for new in range(stream, line.next_stream, 2):
            if numbers.random() < 0.5:
                heapq.heappush(due, (now + numbers.uniform(0, 2 * sent.p50), new))
        stream = line.next_stream
        late = []
        while due and due[0][0] <= now:
            late.append(heapq.heappop(due)[1])
        ended = line.cancel(late) if late else 0
        sent.cancelled += ended
        if select.select([line.sock], [], [], _LOOK)[0]:
            ended += line.read(sent.result)
        if ended and left:
            left -= line.begin(min(ended, left))
    line.sock.close()
    return sent


def _measured(line: Line, in_flight: int) -> Result:
    """As many calls again and again that nobody cancels."""
    result = Result()
    for _ in range(_ROUNDS):
        line.begin(in_flight)
        while line.open:
            line.read(result)
    return result


async def benchmark(calls: int, in_flight: int, seed: int) -> int:
    """One worker, all calls, then what it says about them."""
    with tempfile.TemporaryDirectory(prefix="ip-cancel-") as name:
        folder, registry = Path(name), Registry()
        address = f"unix:{folder}/registry.sock"
        async with registry_stand_in.serving(registry, address):
            await registry.put(_VERSION, artifact.of_model(mlp.graph()))
            async with running(folder, address, max_batch_size="128") as worker:
                await registry.until_state(_VERSION, "READY")
                process = psutil.Process(worker.process.pid)
                await asyncio.to_thread(send, worker.address, calls // 10, in_flight, seed)
                before = process.memory_info().rss
                sent = await asyncio.to_thread(send, worker.address, calls, in_flight, seed + 1)
                grown = (process.memory_info().rss - before) / (1 << 20)
                totals = await _settled(registry)
                last = await asyncio.to_thread(send, worker.address, 1000, in_flight, seed + 2)
        return _told(sent, last, totals, grown) or totals_wrong(totals, calls, in_flight)


async def _settled(registry: Registry) -> tuple[int, int, int]:
    """Succeeded, cancelled and other calls, once none is in flight any more."""

    def counters() -> tuple[int, int, int] | None:
        for worker in registry.workers.values():
            if worker.in_flight == 0 and worker.versions:
                found = worker.versions[0].counters
                return found.succeeded, found.cancelled, found.failed + found.rejected
        return None

    await registry.until(lambda: counters() is not None)
    await asyncio.sleep(0.5)  # two beats: the last one tells of all
    found = counters()
    assert found is not None
    return found


def _told(sent: Sent, last: Sent, totals: tuple[int, int, int], grown: float) -> int:
    succeeded, cancelled, others = totals
    say(f"answers take {1e6 * sent.p50:,.0f} µs (p50); {sent.cancelled:,} calls were cancelled,")
    say(f" {sent.result.calls:,} answered right, {sent.result.wrong} wrong;")
    say(f" the worker counted {succeeded:,} answered, {cancelled:,} cancelled, {others} others;")
    say(f" it grew by {grown:.1f} MiB; afterwards {last.result.calls} answers were right\n")
    # A cancel may cross an answer: the worker then has answered what the client has given up.
    right = succeeded >= sent.result.calls and not others and not sent.result.wrong
    return 0 if right and not last.result.wrong and last.result.calls else 1


def totals_wrong(totals: tuple[int, int, int], calls: int, in_flight: int) -> int:
    """1 if the worker did not count each call once."""
    sent = calls + calls // 10 + 2 * _ROUNDS * in_flight
    if sum(totals) == sent:
        return 0
    say(f"it counted {sum(totals):,} calls of {sent:,}\n")
    return 1


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> int:
    """Parse, run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--calls", type=int, default=360_000, help="about a third of them are cancelled in time"
    )
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    return asyncio.run(benchmark(given.calls, given.in_flight, given.seed))


if __name__ == "__main__":
    sys.exit(main())
