"""The book of leases, on clocks that are moved by hand."""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from services.metering.domain.budget import Budget, BudgetName, BudgetUnit
from services.metering.domain.budget_index import BudgetIndex
from services.metering.domain.lease_book import LeaseBook, Moment
from services.metering.domain.lease_exchange import BudgetUse, Exchange, Grant, LeaseUse, Subject
from services.rpc.calendar_window import WindowKind
from services.rpc.errors import AbortedError, InvalidArgumentError

BUDGET = Budget(
    uid="u",
    name=BudgetName("p", "b"),
    unit=BudgetUnit.TOKENS,
    amount=1000,
    window=WindowKind.MINUTE,
    create_time=datetime(2030, 1, 1, tzinfo=UTC),
)
START = 1_900_000_020  # of a minute


class Desk:
    """A book with one budget, and holders that number what they say."""

    def __init__(self, budget: Budget = BUDGET) -> None:
        self.wall, self.monotonic = START + 10.0, 100.0
        index = BudgetIndex(1)
        index.put(budget)
        self.book = LeaseBook(index, 10.0)
        self.sequence = 0

    @property
    def now(self) -> Moment:
        return Moment(self.wall, self.monotonic)

    def put(self, budget: Budget) -> None:
        self.book.budgets.put(budget)

    def says(self, holder: str, *leases: LeaseUse, sequence: int = 0, **asked: int) -> Grant:
        self.sequence += 1
        use = BudgetUse(uid="u", leases=leases, **asked)
        said = Exchange(holder=holder, sequence=sequence or self.sequence, uses=[use])
        answer, self.must_save = self.book.exchange(said, self.now)
        return answer.grants[0]

    def standing(self) -> dict[str, int]:
        found = self.book.standing(self.book.budgets.get("u") or BUDGET, self.now)
        return {
            name: getattr(found, name)
            for name in ("used", "held", "unreported", "refused")
            if getattr(found, name)
        }


def lease(granted: int, used: int = 0, **other: Any) -> LeaseUse:
    told = {"window_start": START, "refused": 0, "is_closed": False, "serial": 1}
    return LeaseUse(granted=granted, used=used, **{**told, **other})


def test_what_is_granted_must_be_durable_and_what_is_told_need_not() -> None:
    """Only an answer that gives something, or lets the holder forget something, waits for the store."""
    desk = Desk()
    assert desk.says("a", needed=100).granted == 100
    assert desk.must_save
    desk.says("a", lease(100, used=40))
    assert not desk.must_save
    assert desk.standing() == {"used": 40, "held": 60}
    desk.says("a", lease(40, used=40, is_closed=True))
    assert desk.must_save
    assert desk.standing() == {"used": 40}


def test_an_older_exchange_is_refused() -> None:
    """What comes too late would bring back what was given away since."""
    desk = Desk()
    desk.says("a", needed=100, sequence=7)
    with pytest.raises(AbortedError) as error:
        desk.says("a", sequence=7)
    assert error.value.reason == "LEASE_SEQUENCE"


def test_what_runs_short_is_told_to_all() -> None:
    """1. a holds what b needs; 2. b gets nothing of use; 3. a hears that it is scarce; 4. for two seconds."""
    desk = Desk()
    desk.says("a", needed=990, sequence=1)
    short = desk.says("b", needed=20, least=20)
    assert (short.granted, short.available, short.held_by_others) == (0, 10, 990)
    assert desk.says("a", lease(990)).scarce
    desk.monotonic += 2
    assert not desk.says("a", lease(990)).scarce


def test_a_holder_that_does_not_come_in_time_keeps_what_it_did_not_report() -> None:
    """1. its lease ends; 2. nobody else gets what it may have used; 3. it comes back and says so."""
    desk = Desk()
    desk.says("a", needed=600, sequence=1)
    desk.monotonic += 10
    assert desk.book.end_leases(desk.now) == ["a"]
    assert desk.standing() == {"unreported": 600}
    assert desk.says("b", needed=500, least=500).granted == 0
    desk.says("a", lease(250, used=200))
    assert desk.standing() == {"used": 200, "held": 50}


def test_a_lease_that_was_closed_counts_once() -> None:
    """The answer was lost, so the holder says it again; and again after metering has been restarted."""
    desk = Desk()
    desk.says("a", needed=100, sequence=1)
    closed = lease(30, used=30, is_closed=True)
    desk.says("a", closed)
    desk.says("a", closed)
    again = Desk()
    again.book.restore(list(desk.book.accounts()), again.now)
    again.says("a", closed, sequence=50)
    assert again.standing() == {"used": 30}


def test_a_grant_that_was_not_heard_is_free_again() -> None:
    """The holder says nothing of it; in whatever window it was."""
    desk = Desk()
    desk.says("a", needed=900)
    desk.wall += 60
    desk.says("a", needed=100)
    assert desk.standing() == {"held": 100}
    desk.wall -= 60
    assert desk.standing() == {}


def test_a_window_begins_anew_and_the_old_one_is_still_settled() -> None:
    """A request is charged to the window in which it began: its end is told of the older lease."""
    desk = Desk()
    desk.says("a", needed=1000, sequence=1)
    desk.wall += 60
    grant = desk.says("a", lease(1000, used=300), needed=1000)
    assert (grant.window_start, grant.granted) == (START + 60, 1000)
    assert desk.standing() == {"held": 1000}
    desk.wall -= 60
    assert desk.standing() == {"used": 300, "held": 700}


def test_a_clock_that_steps_back_finds_the_window_as_it_was() -> None:
    """What was used of a window is not given out again because it comes a second time."""
    desk = Desk()
    desk.says("a", needed=1000, sequence=1)
    desk.says("a", lease(1000, used=1000))
    desk.wall += 60
    desk.book.tidy(desk.now)
    desk.wall -= 60
    assert desk.says("b", needed=10, least=10).granted == 0


def test_old_windows_are_forgotten_and_so_are_many_dead_holders() -> None:
    """What is remembered is bounded: by time, and by the number of leases that ended."""
    desk = Desk()
    for number in range(70):
        desk.says(f"h{number}", needed=10)
    desk.monotonic += 10
    desk.book.end_leases(desk.now)
    desk.book.tidy(desk.now)
    (account,) = desk.book.accounts()
    assert (account.leases, account.lost) == ({}, 700)
    assert desk.standing() == {"unreported": 700}
    desk.wall += 361
    desk.book.tidy(desk.now)
    assert list(desk.book.accounts()) == []
    assert desk.book.unsaved == {("u", START): None}


@pytest.mark.parametrize(
    ("amount", "more"), [pytest.param(1500, 500, id="raised"), pytest.param(400, 0, id="lowered")]
)
def test_an_amount_changes_in_the_middle_of_a_window(amount: int, more: int) -> None:
    """What was used stays used: a higher amount gives the difference, a lower one nothing more."""
    desk = Desk()
    desk.says("a", needed=1000, sequence=1)
    desk.says("a", lease(1000, used=1000))
    desk.put(replace(BUDGET, amount=amount))
    grant = desk.says("b", needed=2000)
    assert (grant.granted, grant.available) == (more, 0)


def test_a_deleted_budget_is_gone_for_its_holders() -> None:
    """They are told so; another of the same name knows nothing of it."""
    desk = Desk()
    desk.says("a", needed=1000, sequence=1)
    desk.book.budgets.remove(BUDGET)
    desk.book.drop("u")
    assert desk.says("a", lease(1000)).budget is None
    assert desk.book.unsaved == {("u", START): None}


def test_a_shadow_budget_gives_no_leases_and_counts() -> None:
    """Holders only say what was used."""
    desk = Desk(replace(BUDGET, shadow=True))
    grant = desk.says("a", lease(0, used=1200, refused=3), needed=10, wanted=10)
    assert (grant.granted, grant.available) == (0, 0)
    assert desk.standing() == {"used": 1200, "refused": 3}


def test_an_alert_is_given_once_in_a_window() -> None:
    """Each percent once; the next window begins anew."""
    desk = Desk(replace(BUDGET, alert_percents=(50, 100)))
    desk.says("a", needed=1000, sequence=1)
    for used in (499, 500, 700, 1000, 1000):
        desk.says("a", lease(1000, used=used))
    assert [(alert.percent, alert.used) for alert in desk.book.alerts] == [(50, 500), (100, 1000)]
    desk.wall += 60
    desk.says("a", lease(600, used=600, window_start=START + 60, serial=9))
    assert desk.book.alerts[-1].window_start == START + 60


def test_a_window_that_is_none_is_refused() -> None:
    """A start that no window has would be an account that nobody forgets."""
    with pytest.raises(InvalidArgumentError):
        Desk().says("a", lease(1, window_start=START + 1))


def test_who_asks_for_the_first_time_is_told_no_changes() -> None:
    """It knows nothing that could have changed, and hears what binds its callers."""
    desk = Desk()
    said = Exchange(holder="a", sequence=1, subjects=[Subject("p", "k", "e")])
    answer, must_save = desk.book.exchange(said, desk.now)
    assert (answer.changed_projects, must_save) == ((), False)
    assert answer.subjects[0].budgets == (BUDGET,)
    assert desk.book.next_deadline() == 110.0
    assert desk.book.holders == 1


def test_a_book_follows_what_other_processes_wrote() -> None:
    """1. Their grants bind here; 2. sequences of holders that they answered, too; 3. who went short there is told."""
    here, there = shared(), shared()
    there.says("a", needed=700, sequence=5)
    there.says("b", needed=900, least=900, sequence=6)
    here.book.merge(deepcopy(list(there.book.accounts())), {"a": 5, "b": 6}, here.now)
    assert here.says("c", needed=300, sequence=1).granted == 300
    with pytest.raises(AbortedError):
        here.says("a", sequence=5)
    there.says("b", needed=900, least=900, sequence=7)
    assert not here.says("d", sequence=1).scarce
    here.monotonic += 60
    here.book.merge(deepcopy(list(there.book.accounts())), {"b": 7}, here.now)
    assert here.says("b", sequence=8).scarce
    here.book.forget()
    assert (here.standing(), here.book.holders, here.book.unsaved) == ({}, 0, {})


def shared() -> Desk:
    """Its book is one of several."""
    desk = Desk()
    desk.book = LeaseBook(desk.book.budgets, 10.0, is_shared=True)
    return desk
