"""Several processes grant out of one set of budgets: never the same tokens twice."""

import asyncio
import random

import pytest

from services.metering.drivers.desk import moment
from services.rpc.errors import (
    AbortedError,
    AlreadyExistsError,
    NotFoundError,
    UnavailableError,
)
from services.rpc.page import PageRequest
from tests.contract.metering.shared_desks import NAME, Holder, Process, processes, tokens
from tests.manual_clock import ManualClock
from tests.metering_postgres import target_of
from tests.postgres import PostgresServer


async def uid_of(process: Process) -> str:
    return (await process.budgets.get(NAME)).budget.uid


async def test_processes_that_grant_at_once_grant_no_more_than_there_is(metering_url: str) -> None:
    """Three processes, 30 holders that ask them by turns, some exchanges at once: used up and never beyond."""
    amount = 100_000
    drawn = random.Random(11)
    async with processes(target_of(metering_url), 3, ManualClock()) as meterings:
        await meterings[0].budgets.create(NAME, tokens(amount))
        uid = await uid_of(meterings[1])
        crowd = [Holder(f"w{n}", uid, drawn=random.Random(n)) for n in range(30)]

        async def ask(holder: Holder) -> None:
            process = drawn.choice(meterings)
            answer = await process.desk.exchange(holder.says(drawn.randint(1, 3000)))
            holder.hears(answer.grants[0])

        for _ in range(12):
            await asyncio.gather(*map(ask, crowd))
            assert sum(holder.granted for holder in crowd) <= amount
            for holder in crowd:
                holder.works()
        assert sum(holder.granted for holder in crowd) == amount
        for process in meterings:
            standing = (await process.budgets.get(NAME)).standing
            assert standing.held + standing.used == amount


async def test_a_holder_may_move_to_another_process(metering_url: str) -> None:
    """Its lease goes with it, and what comes too late at the first one is refused there."""
    async with processes(target_of(metering_url), 2, ManualClock()) as (first, second):
        await first.budgets.create(NAME, tokens(1000))
        holder = Holder("w", await uid_of(second))
        holder.hears((await first.desk.exchange(holder.says(600))).grants[0])
        late = holder.says(10)
        holder.used = holder.granted
        holder.hears((await second.desk.exchange(holder.says(100))).grants[0])
        assert holder.granted >= 700
        with pytest.raises(AbortedError) as caught:
            await first.desk.exchange(late)
        assert caught.value.reason == "LEASE_SEQUENCE"


async def test_who_lives_is_known_to_all(metering_url: str) -> None:
    """A holder that asks one process lives for the others, and is over for all once it asks none."""
    clock = ManualClock()
    async with processes(target_of(metering_url), 2, clock) as (first, second):
        await first.budgets.create(NAME, tokens(1000))
        holder = Holder("w", await uid_of(second))
        for _ in range(3):
            holder.hears((await first.desk.exchange(holder.says(10))).grants[0])
            clock.advance(6)
            assert (await second.budgets.get(NAME)).standing.held == holder.granted
            assert not second.desk.book.end_leases(moment(clock))
        clock.advance(20)
        assert second.desk.book.end_leases(moment(clock)) == ["w"]


async def test_changed_budgets_bind_at_all_processes_at_once(metering_url: str) -> None:
    """An exchange at one process knows what was changed at another before it; revisions are the same at all."""
    async with processes(target_of(metering_url), 2, ManualClock()) as (first, second):
        await first.budgets.create(NAME, tokens(1000))
        holder = Holder("w", await uid_of(second))
        answer = await second.desk.exchange(holder.says(10))
        await first.budgets.update(NAME, tokens(5), ("amount",), "", create=False)
        later = await second.desk.exchange(holder.says(10))
        assert later.grants[0].budget is not None
        assert later.grants[0].budget.amount == 5
        assert later.revision > answer.revision
        assert later.revision == (await first.desk.exchange(holder.says(0))).revision
        await second.budgets.delete(NAME, "")
        assert (await first.desk.exchange(holder.says(10))).grants[0].budget is None
        with pytest.raises(NotFoundError):
            await first.budgets.get(NAME)


async def test_a_name_is_given_once(metering_url: str) -> None:
    """Two processes make a budget of one name at once: one is told that it exists."""
    async with processes(target_of(metering_url), 2, ManualClock()) as meterings:
        made = await asyncio.gather(
            *(process.budgets.create(NAME, tokens(5)) for process in meterings),
            return_exceptions=True,
        )
        assert sum(isinstance(one, AlreadyExistsError) for one in made) == 1
        for process in meterings:
            page = await process.budgets.list("acme", PageRequest(10, "", ""))
            assert len(page.items) == 1


async def test_alerts_are_told_once(metering_url: str) -> None:
    """By the process at which the percent was reached."""
    async with processes(target_of(metering_url), 2, ManualClock()) as (first, second):
        given = tokens(100)
        await first.budgets.create(NAME, given)
        await first.budgets.update(
            NAME,
            type(given)(unit=None, amount=None, window=None, alert_percents=(50,)),
            ("alert_percents",),
            "",
            create=False,
        )
        holder = Holder("w", await uid_of(second))
        holder.hears((await first.desk.exchange(holder.says(80))).grants[0])
        holder.used = 60
        await second.desk.exchange(holder.says(0))
        await first.desk.exchange(holder.says(0))
        assert [len(first.alerts), len(second.alerts)] == [0, 1]


async def test_a_database_that_restarts_under_exchanges_grants_nothing_twice(
    own_postgres: PostgresServer,
) -> None:
    """Killed and started again meanwhile: some exchanges fail, and what is granted stays within the budget."""
    amount = 50_000
    drawn = random.Random(5)
    async with processes(target_of(own_postgres.url), 2, ManualClock()) as meterings:
        await meterings[0].budgets.create(NAME, tokens(amount))
        uid = await uid_of(meterings[1])
        crowd = [Holder(f"w{n}", uid, drawn=random.Random(n)) for n in range(10)]
        heard = asyncio.Event()

        async def ask(holder: Holder) -> None:
            for _ in range(40):
                process = drawn.choice(meterings)
                try:
                    answer = await process.desk.exchange(holder.says(drawn.randint(1, 400)))
                except UnavailableError:
                    continue
                except AbortedError as error:
                    raise AssertionError from error
                heard.set()
                holder.hears(answer.grants[0])
                holder.works()

        asking = [asyncio.create_task(ask(holder)) for holder in crowd]
        await heard.wait()
        await asyncio.to_thread(own_postgres.kill)
        await asyncio.to_thread(own_postgres.start)
        await asyncio.gather(*asking)
        assert sum(holder.granted for holder in crowd) <= amount
        holder = crowd[0]
        assert (await meterings[0].desk.exchange(holder.says(0))).grants
        standing = (await meterings[1].budgets.get(NAME)).standing
        assert standing.held + standing.used + standing.unreported <= amount
