"""Heartbeats, quiet, and what happens to assignments while the registry is away."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from services.rpc.names import PlacementName, VersionName
from services.worker.domain.assignment import (
    Assignment,
    Change,
    ChangeBatch,
    PlacementChange,
    VersionChange,
    VersionSpec,
)
from services.worker.domain.signature import Signature
from services.worker.drivers.assignments import AssignmentFollower
from services.worker.drivers.heartbeat import Heartbeat
from services.worker.drivers.traffic import Traffic
from services.worker.ports.discovery import RegistrationError, WorkerReport
from services.worker.ports.registry import ConnectionLostError, RevisionUnavailableError

REPORT = WorkerReport(draining=False, in_flight=0, versions=())
LONG = 3600.0  # a beat that no test waits for


class Lease:
    """A Registration that answers when a test lets it."""

    def __init__(self) -> None:
        self.renewals = 0
        self.fails = False
        self.renewed = asyncio.Event()

    async def renew(self, report: WorkerReport) -> None:
        self.renewals += 1
        self.renewed.set()
        if self.fails:
            raise RegistrationError("away")

    async def end(self) -> None:
        raise AssertionError("not the heartbeat's")


async def test_announce_returns_once_discovery_knows() -> None:
    """A renewal that begins after the call, and succeeds."""
    lease = Lease()
    heartbeat = Heartbeat(lambda: REPORT, LONG)
    beating = asyncio.create_task(heartbeat.run(lease))
    await lease.renewed.wait()
    async with asyncio.timeout(30):
        await heartbeat.announce()
    assert lease.renewals == 2
    beating.cancel()


async def test_an_announcement_outlives_a_failed_renewal() -> None:
    """It is told with the next one that succeeds."""
    lease = Lease()
    lease.fails = True
    heartbeat = Heartbeat(lambda: REPORT, LONG)
    beating = asyncio.create_task(heartbeat.run(lease))
    known = asyncio.create_task(heartbeat.announce())
    await lease.renewed.wait()
    lease.renewed.clear()
    heartbeat.ask()
    await lease.renewed.wait()
    assert not known.done()
    lease.fails = False
    heartbeat.ask()
    async with asyncio.timeout(30):
        await known
    beating.cancel()


async def test_it_beats_without_being_asked() -> None:
    """At its interval."""
    lease = Lease()
    beating = asyncio.create_task(Heartbeat(lambda: REPORT, 0.01).run(lease))
    async with asyncio.timeout(30):
        while lease.renewals < 3:
            lease.renewed.clear()
            await lease.renewed.wait()
    beating.cancel()


async def test_quiet_begins_when_the_last_call_ends() -> None:
    """While a call runs it is not quiet, however long it takes; the whole counts its parts."""
    whole = Traffic()
    part = Traffic(whole)
    part.begin()
    assert whole.in_flight == 1
    quiet = asyncio.create_task(whole.until_quiet(0.01, LONG))
    done, _ = await asyncio.wait({quiet}, timeout=0.1)
    assert not done
    part.end()
    async with asyncio.timeout(30):
        assert await quiet


async def test_quiet_that_does_not_come_is_not_waited_for() -> None:
    """The grace time is the bound."""
    traffic = Traffic()
    traffic.begin()
    assert not await traffic.until_quiet(0.01, 0.05)


async def test_steady_traffic_is_not_waited_for_either() -> None:
    """However often calls begin and end: each time that the bound passes it holds."""
    traffic = Traffic()

    async def call() -> None:
        while True:
            traffic.begin()
            await asyncio.sleep(0)
            traffic.end()
            await asyncio.sleep(0)

    calling = asyncio.create_task(call())
    async with asyncio.timeout(30):
        for _ in range(20):
            assert not await traffic.until_quiet(5, 0.005)
    calling.cancel()


V1 = VersionName("m", "1")
SPEC = VersionSpec(name=V1, digest="d", files=(), signature=Signature((), ()))
PLACED = PlacementChange(PlacementName("p", V1), "1")
ALL: list[Change] = [VersionChange(V1, SPEC), PLACED]


class ScriptedRegistry:
    """Streams that a test writes: batches, then an error."""

    def __init__(self, *streams: list[ChangeBatch | Exception]) -> None:
        self.streams = list(streams)
        self.asked: list[int] = []
        self.dry = asyncio.Event()

    async def watch(self, after_revision: int) -> AsyncIterator[ChangeBatch]:
        self.asked.append(after_revision)
        if not self.streams:
            self.dry.set()
            await asyncio.Event().wait()
        for step in self.streams.pop(0):
            if isinstance(step, Exception):
                raise step
            yield step


LOST = ConnectionLostError("gone")


@pytest.mark.parametrize(
    ("streams", "asked", "assigned"),
    [
        pytest.param(
            [[ChangeBatch(ALL, 5, synced=True), LOST]], [0, 5], [1], id="resumes after what it has"
        ),
        pytest.param(
            [[ChangeBatch(ALL, 5, synced=False), LOST]], [0, 0], [], id="begins anew if unsynced"
        ),
        pytest.param(
            [
                [ChangeBatch(ALL, 5, synced=True), LOST],
                [RevisionUnavailableError("old")],
                [ChangeBatch([VersionChange(V1, SPEC)], 2, synced=True), LOST],
            ],
            [0, 5, 0, 2],
            [1, 0],
            id="reads everything again from another registry",
        ),
        pytest.param(
            [[LOST], [ChangeBatch(ALL, 1, synced=True), LOST]], [0, 0, 1], [1], id="comes up later"
        ),
    ],
)
async def test_following_assignments(
    streams: list[list[ChangeBatch | Exception]], asked: list[int], assigned: list[int]
) -> None:
    """What is handed on is always complete, and nothing is handed on just because the registry is away."""
    registry, sizes = ScriptedRegistry(*streams), []

    def assign(wanted: Mapping[VersionName, Assignment]) -> None:
        sizes.append(len(wanted))

    following = asyncio.create_task(AssignmentFollower(registry, "p", assign).run())
    async with asyncio.timeout(20):
        await registry.dry.wait()
    following.cancel()
    assert registry.asked == asked
    assert sizes == assigned
