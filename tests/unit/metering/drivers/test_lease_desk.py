"""The desk of leases: what is granted is durable before anybody hears of it."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from services.metering.adapters.memory_budget_store import MemoryBudgetStore
from services.metering.domain.budget import Budget, BudgetName, BudgetUnit
from services.metering.domain.budget_account import Account
from services.metering.domain.lease_exchange import Alert, BudgetUse, Exchange, LeaseUse
from services.metering.drivers.desk import moment
from services.metering.drivers.lease_desk import LeaseDesk
from services.rpc.calendar_window import WindowKind, window_start
from services.rpc.errors import ResourceExhaustedError
from tests.manual_clock import ManualClock

BUDGET = Budget(
    uid="u",
    name=BudgetName("p", "b"),
    unit=BudgetUnit.TOKENS,
    amount=1000,
    window=WindowKind.DAY,
    alert_percents=(50,),
    create_time=datetime(2030, 1, 1, tzinfo=UTC),
)


class SlowStore(MemoryBudgetStore):
    """Writes when it is let, or has no room."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.is_full = False
        self.writes = 0

    async def save(self, accounts: Mapping[tuple[str, int], Account | None]) -> None:
        await self.may_write.wait()
        if self.is_full:
            raise ResourceExhaustedError("full", reason="DISK_FULL")
        self.writes += 1
        await super().save(accounts)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = SlowStore()
        self.alerts: list[Alert] = []
        self.desk = LeaseDesk(self.store, self.clock, 10.0, self.alerts.append)
        self.start = window_start(WindowKind.DAY, moment(self.clock).wall)

    async def asks(self, holder: str, needed: int, sequence: int = 1) -> int:
        use = BudgetUse(uid="u", leases=[], needed=needed)
        said = Exchange(holder=holder, sequence=sequence, uses=[use])
        return (await self.desk.exchange(said)).grants[0].granted

    async def tells(self, holder: str, used: int, sequence: int) -> None:
        lease = LeaseUse(
            window_start=self.start,
            granted=used,
            used=used,
            refused=0,
            is_closed=False,
            serial=1,
        )
        use = BudgetUse(uid="u", leases=[lease])
        await self.desk.exchange(Exchange(holder=holder, sequence=sequence, uses=[use]))

    async def stored(self) -> int:
        return sum(account.committed for account in (await self.store.load()).accounts)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.store.put(BUDGET)
    await world.desk.open()
    return world


async def test_a_grant_is_answered_once_it_is_durable(world: World) -> None:
    """1. two ask while a write is under way; 2. neither is answered; 3. both are, after two writes in all."""
    world.store.may_write.clear()
    first = asyncio.ensure_future(world.asks("a", 100))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(world.asks(name, 100)) for name in ("b", "c")]
    await asyncio.sleep(0)
    assert not first.done()
    world.store.may_write.set()
    assert await asyncio.gather(first, *others) == [100, 100, 100]
    assert world.store.writes == 2
    assert await world.stored() == 300


async def test_what_could_not_be_written_is_not_granted(world: World) -> None:
    """1. the disk is full: an error; 2. the holder asks again, as it never heard of it; 3. nothing counts twice."""
    world.store.is_full = True
    with pytest.raises(ResourceExhaustedError):
        await world.asks("a", 1000)
    world.store.is_full = False
    assert await world.asks("a", 1000, sequence=2) == 1000
    assert await world.stored() == 1000


async def test_what_nobody_waits_for_is_written_a_little_later(world: World) -> None:
    """Use that was told is durable within a second, without holding up the answer; alerts are told at once."""
    await world.asks("a", 600)
    await world.tells("a", 600, sequence=2)
    assert [alert.percent for alert in world.alerts] == [50]
    assert world.store.writes == 1
    running = asyncio.create_task(world.desk.run())
    await asyncio.sleep(0)
    world.clock.advance(1)
    async with asyncio.timeout(60):
        while world.store.writes < 2:  # noqa: ASYNC110 - a store is watched
            await asyncio.sleep(0)
    assert (await world.store.load()).accounts[0].used == 600
    running.cancel()
    await asyncio.wait([running])


async def test_a_desk_that_cannot_write_goes_on(world: World) -> None:
    """1. the disk is full for a while; 2. leases still end in time; 3. then all of it is written."""
    await world.asks("a", 600)
    await world.tells("a", 500, sequence=2)
    world.store.is_full = True
    running = asyncio.create_task(world.desk.run())
    for _ in range(12):
        await asyncio.sleep(0)
        world.clock.advance(1)
    async with asyncio.timeout(60):
        while world.desk.counts.ended < 1:  # noqa: ASYNC110 - a task is watched
            await asyncio.sleep(0)
        world.store.is_full = False
        while world.desk.book.unsaved:
            await asyncio.sleep(0)
            world.clock.advance(1)
    assert (await world.store.load()).accounts[0].used == 500
    running.cancel()
    await asyncio.wait([running])
