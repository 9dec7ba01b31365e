"""What a worker tells discovery and what a router hears: the same whoever keeps the list."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.worker.drivers.heartbeat import Heartbeat
from services.worker.ports.discovery import RegistrationError, WorkerReport
from tests.consul_agent import eventually
from tests.contract.discovery.conftest import Discovery
from tests.discovery_parts import V1, V2, Router, beating, heard, identity, report


@asynccontextmanager
async def following(discovery: Discovery) -> AsyncIterator[Router]:
    """A router that has heard discovery."""
    async with heard(discovery.follow, kept=60.0) as router:  # as the router's own directory does
        yield router


@asynccontextmanager
async def living(discovery: Discovery, name: str, report: WorkerReport) -> AsyncIterator[Heartbeat]:
    """A worker that renews its lease, and leaves without a word."""
    async with beating(discovery.registration(identity(name)), report) as heartbeat:
        yield heartbeat


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
