"""A paced load of OIP calls against the edge, every answer checked.

Open loop: calls start at their due time whatever the answers do, so a stall shows as latency and is not hidden by fewer
calls, unless `most` bounds how many may be in flight. Bounded in count; each call has a deadline; each ends in exactly
one `Outcome`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc as oip_grpc

from services.rpc.channel import options

Check = Callable[[oip.ModelInferResponse], bool]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended."""

    due: float  # monotonic seconds at which it was meant to start
    start: float  # when it did
    end: float
    status: str  # OK, WRONG (answered, but not what it should be) or a gRPC status code's name
    version: str  # that computed the answer; empty if none
    detail: str = ""  # the error's text


@dataclass(slots=True)
class Report:
    """What a load saw."""

    outcomes: list[Outcome] = field(default_factory=list)
    grown: asyncio.Condition = field(default_factory=asyncio.Condition)  # notified at each outcome

    @property
    def statuses(self) -> Counter[str]:
        """Calls by how they ended."""
        return Counter(o.status for o in self.outcomes)

    @property
    def versions(self) -> Counter[str]:
        """Answered calls by the version that computed them."""
        return Counter(o.version for o in self.outcomes if o.version)

    @property
    def failures(self) -> list[Outcome]:
        """All that did not end in a right answer."""
        return [o for o in self.outcomes if o.status != "OK"]

    @property
    def longest(self) -> float:
        """Seconds that the slowest call took, however late it was begun."""
        return max(o.end - o.start for o in self.outcomes)

    def latency(self, quantile: float) -> float:
        """Seconds from due time to answer, at a quantile between 0 and 1."""
        ordered = sorted(o.end - o.due for o in self.outcomes)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]

    def summary(self) -> str:
        """One line for a person."""
        p50, p99 = (1e3 * self.latency(q) for q in (0.5, 0.99))
        shares = ", ".join(f"{v}: {n}" for v, n in sorted(self.versions.items()))
        ends = ", ".join(f"{s} {n}" for s, n in sorted(self.statuses.items()))
        return f"{len(self.outcomes)} calls: {ends}; p50 {p50:.1f} ms, p99 {p99:.1f} ms; {shares}"


@dataclass(frozen=True, slots=True)
class Sample:
    """A request and the judge of its answers."""

    request: oip.ModelInferRequest
    is_right: Check
    metadata: tuple[tuple[str, str], ...] = ()


async def run(
    address: str,
    samples: Sequence[Sample],
    *,
    calls: int,
    rate: float,
    deadline: float = 10.0,
    channels: int = 2,
    most: int | None = None,
    stop: asyncio.Event | None = None,
    into: Report | None = None,
) -> Report:
    """Send `calls` requests at `rate` per second, going round the samples, and wait for every end.

    Args:
        address: the edge, `host:port`.
        samples: requests with their judges.
        calls: how many; fewer if `stop` is set earlier.
        rate: calls begun per second.
        deadline: seconds that each call may take.
        channels: connections to spread over.
        most: calls in flight beyond which the next one waits: a machine that can't keep up slows the load down.
        stop: ends the sending early.
        into: a report to fill, for those who watch it while it grows.
    """
    opened = [
        grpc.aio.insecure_channel(
            address, options=[*options(), ("grpc.use_local_subchannel_pool", 1)]
        )
        for _ in range(channels)
    ]
    stubs = [oip_grpc.GRPCInferenceServiceStub(channel) for channel in opened]
    report = into or Report()
    running: set[asyncio.Task[None]] = set()
    slots = asyncio.Semaphore(calls if most is None else most)
    begin = time.monotonic()
    for number in range(calls):
        due = begin + number / rate
        wait = due - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        await slots.acquire()
        if stop is not None and stop.is_set():
            break
        sample = samples[number % len(samples)]
        task = asyncio.create_task(_call(stubs[number % channels], sample, due, deadline, report))
        running.add(task)
        task.add_done_callback(running.discard)
        task.add_done_callback(lambda _: slots.release())
    await asyncio.gather(*running)
    for channel in opened:
        await channel.close()
    return report


async def _call(
    stub: oip_grpc.GRPCInferenceServiceAsyncStub,
    sample: Sample,
    due: float,
    deadline: float,
    report: Report,
) -> None:
    start = time.monotonic()
    status, version, detail = "OK", "", ""
    try:
        answer = await stub.ModelInfer(sample.request, timeout=deadline, metadata=sample.metadata)
        version = answer.model_version
        if not sample.is_right(answer):
            status = "WRONG"
    except grpc.aio.AioRpcError as error:
        status, detail = error.code().name, error.details() or ""
    report.outcomes.append(Outcome(due, start, time.monotonic(), status, version, detail))
    async with report.grown:
        report.grown.notify_all()
