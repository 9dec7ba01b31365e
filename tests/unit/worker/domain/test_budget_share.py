"""One budget at one worker."""

from dataclasses import replace
from typing import Any

import pytest

from services.rpc.calendar_window import WindowKind
from services.worker.domain.budget_share import BudgetUse, Grant, Share
from services.worker.domain.budget_terms import BudgetTerms, BudgetUnit

START = 1_900_000_020  # of a minute
TERMS = BudgetTerms(
    uid="u",
    name="projects/p/budgets/b",
    unit=BudgetUnit.TOKENS,
    window=WindowKind.MINUTE,
    amount=1000,
)
FOREVER = 1e9


def heard(share: Share, serial: int, sent_at: float = 0.0, **answer: Any) -> BudgetUse:
    """One exchange, in which metering says this."""
    told = share.tell()
    grant = {"terms": TERMS, "window_start": START, "window_left": 60.0}
    share.hear(Grant(**{"uid": "u", **grant, **answer}), told, serial, sent_at)
    return told


def share_with(granted: int, **answer: Any) -> Share:
    share = Share(TERMS)
    share.crave(granted, granted)
    heard(share, 1, granted=granted, **answer)
    share.crave(0, 0)
    return share


def take(share: Share, amount: int) -> None:
    assert share.current is not None
    share.take(share.current, amount)


def settle(share: Share, amount: int, used: int) -> None:
    assert share.current is not None
    share.current.reserved -= amount
    share.current.used += used


def test_what_is_free_ends_with_the_window_and_with_the_lease() -> None:
    """Both by this worker's own clock, counted from when it asked: never later than at metering."""
    share = share_with(100)
    take(share, 30)
    assert share.free(59.9, FOREVER) == 70
    assert share.free(60.0, FOREVER) == 0
    assert share.free(10.0, 10.0) == 0


def test_appetite_follows_what_is_taken() -> None:
    """1. requests that wait double it; 2. a busy period keeps twice what was taken; 3. idle ones give it back."""
    share = Share(TERMS)
    share.crave(50, 50)
    share.crave(50, 50)
    assert share.appetite == 100
    share.taken_in_period = 300
    share.calm()
    assert share.appetite == 600
    for _ in range(6):
        share.calm()
    assert share.appetite == 0


def test_what_lies_idle_is_given_back_by_saying_so() -> None:
    """What is said to be kept is what is under way and what the appetite allows; the rest is gone at once."""
    share = share_with(500)
    take(share, 40)
    share.appetite = 60
    told = share.tell()
    assert told.leases[0].granted == 100
    assert share.free(1.0, FOREVER) == 60


def test_what_is_scarce_is_not_kept() -> None:
    """Others wait: nothing lies idle here, whatever the appetite."""
    share = share_with(500, scarce=True)
    take(share, 40)
    share.appetite = 60
    assert share.tell().leases[0].granted == 40
    assert not share.is_low()


def test_an_idle_lease_is_closed_once_metering_has_heard() -> None:
    """1. all is settled; 2. it is told as closed, again after a lost answer, with the same figures; 3. forgotten."""
    share = share_with(100)
    take(share, 100)
    settle(share, 100, 70)
    share.appetite = 0
    heard(share, 2, granted=70)
    first, again = share.tell(), share.tell()
    assert (first.leases[0].is_closed, first.leases[0].used) == (True, 70)
    assert again.leases == first.leases
    heard(share, 3)
    assert not share.is_live


def test_a_request_is_charged_to_the_window_it_began_in() -> None:
    """The window ends while it runs: its lease stays until it has ended, beside that of the new window."""
    share = share_with(100)
    lease = share.current
    assert lease is not None
    take(share, 80)
    heard(share, 2, sent_at=60.0, granted=50, window_start=START + 60)
    assert share.current is not lease
    assert share.free(61.0, FOREVER) == 50
    lease.reserved -= 80
    lease.used += 10
    told = share.tell()
    assert [(x.window_start, x.used, x.is_closed) for x in told.leases] == [
        (START, 10, True),
        (START + 60, 0, False),
    ]


def test_a_clock_that_steps_back_comes_to_the_lease_that_is_still_there() -> None:
    """Metering's window is an older one again: what was under way there counts."""
    share = share_with(100)
    first = share.current
    take(share, 80)
    heard(share, 2, granted=50, window_start=START + 60)
    heard(share, 3, granted=90)
    assert share.current is first
    assert share.free(1.0, FOREVER) == 10


def test_without_metering_windows_go_on_by_the_own_clock() -> None:
    """A lease of the next window is made without a grant; at most so many are kept."""
    share = share_with(100)
    take(share, 10)
    for minute in range(1, 200):
        lease = share.lease_at(minute + 1, START + 60.0 * minute, 60.0 * minute)
        assert (lease.window_start, lease.granted) == (START + 60 * minute, 0)
        assert share.lease_at(999, START + 60.0 * minute + 1, 60.0 * minute + 1) is lease
    assert len(share.older) <= 64


def test_asking_is_of_no_use_just_after_metering_said_no() -> None:
    """For a tenth of a second while others hold some of it, for a beat where nobody does; never across windows."""
    share = share_with(10, available=5, held_by_others=100)
    assert share.refuses(16, 0.05, FOREVER)
    assert not share.refuses(15, 0.05, FOREVER)
    assert not share.refuses(16, 0.1, FOREVER)
    spent = share_with(10, available=0)
    assert spent.refuses(16, 0.9, FOREVER)
    assert not spent.refuses(16, 1.0, FOREVER)
    assert not spent.refuses(16, 60.0, FOREVER)


@pytest.mark.parametrize(
    ("held", "amount", "after"),
    [
        pytest.param(100, 50, 1.0, id="soon, while others hold some"),
        pytest.param(0, 50, 59.0, id="in the next window, when it is used up"),
        pytest.param(100, 1001, None, id="never, for what is more than the budget"),
    ],
)
def test_when_to_try_again(held: int, amount: int, after: float | None) -> None:
    """As soon as it may help."""
    assert share_with(0, held_by_others=held).retry_after(amount, 1.0) == after


def test_remaining_is_what_nobody_has_and_what_is_free_here() -> None:
    """A shadow budget counts what was taken since it was told."""
    share = share_with(100, available=300)
    take(share, 30)
    assert share.remaining() == 370
    shadow = Share(replace(TERMS, shadow=True))
    shadow.available = 300
    shadow.taken = 50
    assert shadow.remaining() == 250
    assert not shadow.is_low()


def test_streams_under_way_ask_for_more_than_nothing() -> None:
    """What they would like is asked for once, and any token of it is of use."""
    share = share_with(100)
    share.stretch = 40
    share.crave(0, 0)
    told = share.tell()
    assert (told.needed, told.least) == (0, 0)
    take(share, 100)
    share.stretch = 40
    share.crave(0, 0)
    told = share.tell()
    assert (told.needed, told.least) == (40, 1)


def test_a_budget_that_is_gone_is_forgotten() -> None:
    """What is under way ends without it."""
    share = share_with(100)
    take(share, 10)
    heard(share, 2, terms=None)
    assert share.is_gone
    assert not share.is_live
