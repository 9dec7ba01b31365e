"""The driver of leases, on a clock that is moved by hand."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.registry.domain.worker import LoadState
from services.registry.drivers.leases import Leases
from services.rpc.errors import UnavailableError
from services.rpc.names import WorkerName
from tests.manual_clock import ManualClock
from tests.unit.registry.records import worker


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def leases(clock: ManualClock) -> AsyncIterator[Leases]:
    leases = Leases(clock)
    running = asyncio.create_task(leases.run())
    yield leases
    running.cancel()
    await asyncio.wait([running])


def names(leases: Leases) -> list[str]:
    return [live.worker.name.worker for live in leases.live()]


async def news(leases: Leases, seen: int) -> int:
    async with asyncio.timeout(5):
        return await leases.wait_beyond(seen)


async def test_a_watcher_hears_of_what_there_is_at_once(leases: Leases) -> None:
    """Also when there is nobody: an empty answer is an answer."""
    assert await news(leases, 0) == 1
    assert names(leases) == []


async def test_a_lease_ends_at_its_ttl_and_is_told(leases: Leases, clock: ManualClock) -> None:
    """1. two workers register; 2. one renews; 3. at 5 s the other is gone, told once, without polling."""
    leases.register(worker("a"), 5)
    leases.register(worker("b"), 5)
    seen = await news(leases, 1)
    clock.advance(4)
    leases.register(worker("a"), 5)
    clock.advance(0.999)
    assert names(leases) == ["a", "b"]
    clock.advance(0.001)
    assert names(leases) == ["a"]
    assert await news(leases, seen) == seen + 1
    assert len(leases) == 1


async def test_a_shorter_lease_is_not_missed(leases: Leases, clock: ManualClock) -> None:
    """A worker that registers later with an earlier deadline is ended at that deadline."""
    leases.register(worker("slow"), 60)
    seen = await news(leases, 1)
    leases.register(worker("quick"), 1)
    seen = await news(leases, seen)
    clock.advance(1)
    await news(leases, seen)
    assert names(leases) == ["slow"]


async def test_leaving_is_told_at_once(leases: Leases) -> None:
    """A worker that deregisters, or drains, is news without waiting for any deadline."""
    states = {"m@1": LoadState.READY}
    leases.register(worker("a", states=states), 5)
    seen = await news(leases, 1)
    leases.register(worker("a", states=states, draining=True), 5)
    seen = await news(leases, seen)
    leases.deregister(WorkerName("a"))
    await news(leases, seen)
    leases.deregister(WorkerName("a"))
    assert names(leases) == []


async def test_renewals_are_no_news(leases: Leases) -> None:
    """Counters alone wake nobody, yet are there when asked for."""
    leases.register(worker("a"), 5)
    seen = await news(leases, 1)
    leases.register(worker("a", in_flight=9), 5)
    waiting = asyncio.create_task(leases.wait_beyond(seen))
    await asyncio.sleep(0)  # lets it begin
    assert not waiting.done()
    assert leases.workers()[0].in_flight == 9
    leases.close()
    with pytest.raises(UnavailableError):
        await waiting


async def test_the_end_of_a_lease_is_told(leases: Leases, clock: ManualClock) -> None:
    """A live worker says in wall time when its lease ends."""
    live = leases.register(worker("a"), 5)
    clock.advance(2)
    assert leases.live()[0].expire_time == live.expire_time
    assert live.expire_time is not None
    assert (live.expire_time - clock.now()).total_seconds() == 3
