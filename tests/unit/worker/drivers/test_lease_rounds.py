"""Rounds of exchanges, with a metering whose answers are written by hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from services.rpc.calendar_window import WindowKind
from services.rpc.errors import ResourceExhaustedError, UnavailableError
from services.rpc.names import VersionName
from services.worker.domain.budget_share import BudgetUse, Grant
from services.worker.domain.budget_terms import BudgetTerms, BudgetUnit, Rates
from services.worker.domain.caller import Caller
from services.worker.domain.need import Need
from services.worker.drivers.allowance import Allowances
from services.worker.drivers.lease_rounds import LeaseRounds
from services.worker.drivers.no_budgets import NOTHING_RESERVED
from services.worker.ports.allowance import Reservation
from services.worker.ports.lease_exchange import CallerTerms, LeaseAnswer, LeaseReport
from tests.manual_clock import ManualClock

VERSION = VersionName("m", "1")


def terms(uid: str) -> BudgetTerms:
    return BudgetTerms(
        uid=uid, name=uid, unit=BudgetUnit.TOKENS, window=WindowKind.DAY, amount=10**9
    )


@dataclass
class WrittenMetering:
    """A LeaseExchange: each key has a budget of its own, and everybody gets what is needed of what is left."""

    left: int = 10**9
    elsewhere: int = 0  # that others hold, and have not been asked for yet
    is_away: bool = False
    has_budgets: bool = True
    changed: Sequence[str] | None = ()
    price_revision: str = "1"
    heard: list[LeaseReport] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: int = 0

    async def exchange(self, report: LeaseReport) -> LeaseAnswer:
        self.heard.append(report)
        self.under_way += 1
        assert self.under_way == 1
        await self.may_answer.wait()
        self.under_way -= 1
        if self.is_away:
            raise UnavailableError("away")
        changed, self.changed = self.changed, ()
        return LeaseAnswer(
            lease_seconds=10.0,
            next_seconds=1.0,
            revision=len(self.heard),
            changed_projects=changed,
            callers=[
                CallerTerms([terms(caller.key)] if self.has_budgets else [], not self.has_budgets)
                for caller in report.callers
            ],
            grants=[self._grant(use) for use in report.uses],
            rates=[Rates(request=int(self.price_revision)) for _ in report.rates],
            price_revision=self.price_revision,
        )

    def _grant(self, use: BudgetUse) -> Grant:
        given = min(use.needed, self.left) if self.left >= use.least else 0
        self.left -= given
        held = sum(lease.granted for lease in use.leases if not lease.is_closed)
        return Grant(
            uid=use.uid,
            terms=terms(use.uid),
            window_left=3600.0,
            granted=held + given,
            available=self.left,
            held_by_others=self.elsewhere,
            scarce=use.needed > given and self.elsewhere > 0,
        )


@dataclass
class World:
    clock: ManualClock
    metering: WrittenMetering
    worker: Allowances
    rounds: LeaseRounds

    def asks(self, key: str, tokens: int) -> "asyncio.Future[Reservation]":
        found = self.worker.reserve(Caller("p", key, "e"), VERSION, Need(output_tokens=tokens))
        assert isinstance(found, Awaitable)
        return asyncio.ensure_future(found)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self.clock.advance(0.001)
                await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock, metering = ManualClock(), WrittenMetering()
    metering.may_answer.set()
    worker = Allowances(clock, "closed")
    rounds = LeaseRounds(worker, metering)
    running = asyncio.create_task(rounds.run())
    yield World(clock, metering, worker, rounds)
    running.cancel()
    await asyncio.wait([running])


async def test_requests_that_wait_share_an_exchange(world: World) -> None:
    """1. one is under way; 2. a hundred requests come; 3. one exchange asks for all of them, one for their leases."""
    world.metering.may_answer.clear()
    await world.until(lambda: world.metering.under_way == 1)
    seen = len(world.metering.heard)
    waiting = [world.asks("k", 10) for _ in range(100)]
    world.metering.may_answer.set()
    await world.until(lambda: all(future.done() for future in waiting))
    callers, leases = world.metering.heard[seen : seen + 2]
    assert (len(callers.callers), leases.uses[0].needed) == (1, 1000)
    assert world.worker.active["k"].current is not None
    assert world.worker.active["k"].current.reserved == 1000


async def test_what_is_there_serves_those_that_came_first(world: World) -> None:
    """Those that find nothing are refused; nobody waits for a second answer."""
    world.metering.left = 25
    waiting = [world.asks("k", 10) for _ in range(4)]
    await world.until(lambda: all(future.done() for future in waiting))
    assert [future.exception() is None for future in waiting] == [True, True, False, False]
    refusal = waiting[3].exception()
    assert isinstance(refusal, ResourceExhaustedError)
    assert refusal.retry_after is not None
    assert f"try again in {refusal.retry_after:.0f} s" in refusal.message


async def test_what_others_give_back_in_a_moment_is_waited_for(world: World) -> None:
    """Once they have heard of it; meanwhile it is asked ten times a second, however many wait."""
    world.metering.left, world.metering.elsewhere = 10, 30
    first, second = world.asks("k", 40), world.asks("k", 40)
    await world.until(lambda: world.metering.heard[-1].uses != ())
    began, seen = world.clock.monotonic(), len(world.metering.heard)
    third = world.asks("k", 40)
    await world.until(lambda: world.clock.monotonic() > began + 0.45)
    assert not any(future.done() for future in (first, second, third))
    assert len(world.metering.heard) - seen <= 6
    world.metering.left, world.metering.elsewhere = 40, 0
    await world.until(lambda: first.done() and second.done() and third.done())
    (await first).release()
    for late in (second, third):
        with pytest.raises(ResourceExhaustedError, match="is used up"):
            await late


async def test_what_others_keep_is_waited_for_once(world: World) -> None:
    """Then they need it: who comes in the same shortage is refused at once, and so is who needs more than is there."""
    world.metering.left, world.metering.elsewhere = 10, 30
    first, larger = world.asks("k", 40), world.asks("k", 41)
    began = world.clock.monotonic()
    await world.until(larger.done)
    assert world.clock.monotonic() - began < 0.1
    await world.until(first.done)
    assert 1.4 < world.clock.monotonic() - began < 1.7
    with pytest.raises(ResourceExhaustedError, match="try again in 1 s"):
        world.asks("k", 40)
    for refused in (first, larger):
        with pytest.raises(ResourceExhaustedError, match="try again in 1 s"):
            await refused


async def test_only_so_many_wait_for_what_others_give_back(world: World) -> None:
    """The others are refused: who asks without end must not fill the memory."""
    world.metering.left, world.metering.elsewhere = 10, 30
    waiting = [world.asks("k", 40) for _ in range(1100)]
    await world.until(lambda: sum(future.done() for future in waiting) >= 100)
    assert sum(future.done() for future in waiting) == 100
    world.metering.left, world.metering.elsewhere = 40 * 1000, 0
    await world.until(lambda: all(future.done() for future in waiting))
    assert sum(future.exception() is None for future in waiting) == 1000


async def test_more_budgets_than_fit_are_told_in_turn(world: World) -> None:
    """Each of three thousand is told of within two beats; those that wait are in every exchange."""
    waiting = [world.asks(f"k{number}", 10) for number in range(3000)]
    await world.until(lambda: all(future.done() for future in waiting))
    seen = len(world.metering.heard)
    world.clock.advance(1)
    await world.until(lambda: len(world.metering.heard) > seen)
    world.clock.advance(1)
    await world.until(lambda: len(world.metering.heard) > seen + 1)
    told = [[use.uid for use in report.uses] for report in world.metering.heard[seen : seen + 2]]
    assert [len(uids) for uids in told] == [2000, 2000]
    assert len({uid for uids in told for uid in uids}) == 3000


async def test_a_project_whose_budgets_changed_is_asked_about_again(world: World) -> None:
    """1. bound by nothing; 2. metering tells of a change; 3. the next call asks."""
    world.metering.has_budgets = False
    first = world.asks("k", 10)
    await world.until(first.done)
    assert first.result() is NOTHING_RESERVED
    world.metering.has_budgets, world.metering.changed = True, ["p"]
    world.clock.advance(1)
    await world.until(lambda: world.metering.changed == ())
    await world.until(lambda: not world.worker.free_projects)
    second = world.asks("k", 10)
    await world.until(second.done)
    assert second.result() is not NOTHING_RESERVED


async def test_requests_wait_through_a_short_failure_and_not_through_a_long_one(
    world: World,
) -> None:
    """Leases last ten seconds: until then the next try may help; after that the setting decides."""
    world.metering.is_away = True
    waits = world.asks("k", 10)
    await world.until(lambda: world.worker.counts.failures >= 3)
    assert not waits.done()
    world.metering.is_away = False
    await world.until(waits.done)
    world.metering.is_away = True
    more = world.asks("another", 10)
    await world.until(more.done)
    error = more.exception()
    assert isinstance(error, UnavailableError)
    assert error.reason == "METERING_UNAVAILABLE"


async def test_an_answer_that_came_too_late_refuses_nobody(world: World) -> None:
    """It took longer than the lease that it grants; there is enough, and the next answer grants it."""
    first = world.asks("k", 10)
    await world.until(first.done)
    world.metering.may_answer.clear()
    waiting = world.asks("k", 500)
    await world.until(lambda: any(use.needed >= 400 for use in world.metering.heard[-1].uses))
    world.clock.advance(11.0)
    world.metering.may_answer.set()
    await world.until(waiting.done)
    assert waiting.exception() is None


async def test_at_the_end_everything_is_given_back(world: World) -> None:
    """What was used is told, and the lease is closed."""
    waits = world.asks("k", 10)
    await world.until(waits.done)
    waits.result().settle(Need(output_tokens=7))
    await world.rounds.end()
    (use,) = world.metering.heard[-1].uses
    assert [(lease.granted, lease.used, lease.is_closed) for lease in use.leases] == [(7, 7, True)]


async def test_rates_are_asked_for_again_when_prices_changed(world: World) -> None:
    """1. thousands are known, and nobody asks; 2. prices change: all are learned anew, some in each exchange."""
    metering, versions = world.metering, [VersionName("m", str(number)) for number in range(2500)]
    await world.until(lambda: len(metering.heard) >= 2)
    for version in versions:
        world.worker.learn_rates("p", version, Rates(request=1))
    seen = len(metering.heard)
    await world.until(lambda: len(metering.heard) >= seen + 8)
    assert all(not report.rates for report in metering.heard[seen:])
    metering.price_revision, seen = "2", len(metering.heard)
    await world.until(lambda: len(metering.heard) >= seen + 8)
    assert {world.worker.rates["p", version].request for version in versions} == {2}
    asked = [len(report.rates) for report in metering.heard[seen:]]
    assert (max(asked), sum(asked)) == (1000, 2500)
