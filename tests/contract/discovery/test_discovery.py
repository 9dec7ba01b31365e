"""What a worker tells discovery and what a router hears: the same whoever keeps the list."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from services.router.domain.topology import Worker
from services.router.domain.worker_directory import WorkerDirectory
from services.rpc.names import VersionName
from services.worker.domain.counters import Counters
from services.worker.domain.load_state import LoadState
from services.worker.drivers.heartbeat import Heartbeat
from services.worker.ports.discovery import RegistrationError, VersionReport, WorkerReport
from tests.consul_agent import eventually
from tests.contract.discovery.conftest import LEASE, Discovery, identity

V1, V2 = VersionName("digits", "1"), VersionName("digits", "2")
_KEPT = 60.0  # seconds that the directory is patient for after a return; longer than any test


class Router:
    """Hears discovery as the router does, and notes each picture that it would publish."""

    def __init__(self) -> None:
        self.directory = WorkerDirectory(lease=_KEPT)
        self.is_connected = False
        self.pictures: list[tuple[str, ...]] = []
        self.told = 0

    def hear_discovery(self, workers: Sequence[Worker]) -> None:
        self.is_connected = True
        self.told += 1
        self.directory.hear(workers, 0.0)
        self.pictures.append(tuple(worker.name for worker in self.workers))

    def lose_discovery(self) -> None:
        self.is_connected = False
        self.directory.lose()

    @property
    def workers(self) -> tuple[Worker, ...]:
        return self.directory.live(0.0)

    @property
    def names(self) -> list[str]:
        return [worker.name.removeprefix("workers/") for worker in self.workers]


@asynccontextmanager
async def following(discovery: Discovery) -> AsyncIterator[Router]:
    """A router that has heard discovery."""
    router = Router()
    task = asyncio.create_task(discovery.follow(router))
    await eventually(lambda: router.is_connected, "discovery is heard")
    yield router
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def living(discovery: Discovery, name: str, report: WorkerReport) -> AsyncIterator[Heartbeat]:
    """A worker that renews its lease, and leaves without a word."""
    heartbeat = Heartbeat(lambda: report, LEASE / 5)
    beating = asyncio.create_task(heartbeat.run(discovery.registration(identity(name))))
    try:
        async with asyncio.timeout(60):
            await heartbeat.announce()
        yield heartbeat
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


def report(*ready: VersionName, draining: bool = False, calls: int = 0) -> WorkerReport:
    counters = Counters(succeeded=calls)
    versions = [VersionReport(name, LoadState.READY, "", counters) for name in ready]
    return WorkerReport(draining=draining, in_flight=calls, versions=versions)


async def test_worker_is_heard(discovery: Discovery) -> None:
    """Address, drain and READY versions arrive; a change arrives, and so does the end."""
    async with following(discovery) as router:
        registration = discovery.registration(identity("w1"))
        await registration.renew(report(V1))
        await eventually(lambda: router.names == ["w1"], "the worker is heard")
        (worker,) = router.workers
        assert (worker.address, worker.draining) == ("unix:/run/w1.sock", False)
        assert worker.ready == {V1}
        await registration.renew(report(V1, V2, draining=True))
        await eventually(lambda: router.workers[0].ready == {V1, V2}, "the change is heard")
        assert router.workers[0].draining
        await registration.end()
        await eventually(lambda: router.names == [], "the end is heard")


async def test_counters_wake_nobody(discovery: Discovery) -> None:
    """Renewals that change what routing doesn't need are not told."""
    async with following(discovery) as router:
        registration = discovery.registration(identity("w1"))
        await registration.renew(report(V1))
        await eventually(lambda: router.names == ["w1"], "the worker is heard")
        told = router.told
        for calls in range(1, 10):
            await registration.renew(report(V1, calls=calls))
        await registration.renew(report(V1, V2, calls=10))
        await eventually(lambda: V2 in router.workers[0].ready, "the change is heard")
        assert router.told == told + 1
        await registration.end()


async def test_worker_that_stops_renewing(discovery: Discovery) -> None:
    """Who doesn't renew is gone when the lease is over; who does stays all the while."""
    async with (
        following(discovery) as router,
        living(discovery, "w2", report(V1)),
    ):
        async with living(discovery, "w1", report(V1)):
            await eventually(lambda: router.names == ["w1", "w2"], "both are heard")
        await eventually(lambda: router.names == ["w2"], "the lease is over")
        assert all("workers/w2" in picture for picture in router.pictures[-2:])


async def test_discovery_dies(discovery: Discovery) -> None:
    """While discovery is away all that were known stay; back and empty it removes nobody, and workers return."""
    async with (
        following(discovery) as router,
        living(discovery, "w1", report(V1)),
        living(discovery, "w2", report(V1)),
    ):
        await eventually(lambda: router.names == ["w1", "w2"], "both are heard")
        seen = len(router.pictures)
        await discovery.kill()
        await eventually(lambda: not router.is_connected, "the loss is noticed")
        with pytest.raises(RegistrationError):
            await discovery.registration(identity("w3")).renew(report())
        assert router.names == ["w1", "w2"]
        await discovery.start()
        await eventually(lambda: router.is_connected, "the return is noticed")
        async with living(discovery, "w4", report(V1)):
            await eventually(lambda: "w4" in router.names, "news are heard")
        assert all({"workers/w1", "workers/w2"} <= set(p) for p in router.pictures[seen:])
        # Heard anew, and not only remembered: a router that begins now hears them too.
        async with following(discovery) as other:
            await eventually(lambda: {"w1", "w2"} <= set(other.names), "workers are back")


async def test_end_of_what_nobody_knows(discovery: Discovery) -> None:
    """Ending a registration that there is none of, or with nobody to tell, is no error."""
    await discovery.registration(identity("w1")).end()
    await discovery.kill()
    await discovery.registration(identity("w1")).end()
    await discovery.start()
