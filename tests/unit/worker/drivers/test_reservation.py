"""What was set aside for one request."""

from services.rpc.calendar_window import WindowKind
from services.rpc.names import VersionName
from services.worker.domain.budget_share import Grant, Share
from services.worker.domain.budget_terms import BudgetTerms, BudgetUnit, Rates
from services.worker.domain.caller import Caller
from services.worker.domain.need import Need
from services.worker.drivers.allowance import Allowances
from services.worker.drivers.reservation import Held, amount_text
from tests.manual_clock import ManualClock

VERSION = VersionName("m", "1")
CALLER = Caller("p", "k", "e")


class World:
    """Allowances whose leases are given by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.allowances = Allowances(self.clock, "closed")
        self.shares: tuple[Share, ...] = ()

    def give(self, unit: BudgetUnit, granted: int, *, amount: int = 1000, **terms: bool) -> Share:
        uid = f"u{len(self.shares)}"
        known = BudgetTerms(
            uid=uid, name=uid, unit=unit, window=WindowKind.DAY, amount=amount, **terms
        )
        share = self.allowances.share_of(known)
        share.crave(granted, 0)
        grant = Grant(uid=uid, terms=known, window_left=3600.0, granted=granted)
        share.hear(grant, share.tell(), 1, self.clock.monotonic())
        self.shares += (share,)
        self.allowances.callers.put(CALLER, self.shares)
        return share

    def reserve(self, **need: int) -> Held:
        held = self.allowances.reserve(CALLER, VERSION, Need(**need))
        assert isinstance(held, Held)
        return held


def test_it_ends_once() -> None:
    """Settled or released, whichever comes first; in all budgets."""
    world = World()
    tokens = world.give(BudgetUnit.TOKENS, 100)
    requests = world.give(BudgetUnit.REQUESTS, 10)
    settled, released = world.reserve(output_tokens=40), world.reserve(output_tokens=30)
    settled.settle(Need(output_tokens=10))
    settled.release()
    released.release()
    released.settle(Need(output_tokens=30))
    for share, used in ((tokens, 10), (requests, 1)):
        assert share.current is not None
        assert (share.current.used, share.current.reserved) == (used, 0)


def test_headers_tell_the_tightest_budget_of_each_unit() -> None:
    """Limit, what is left and the seconds until it begins anew."""
    world = World()
    world.give(BudgetUnit.TOKENS, 100)
    world.give(BudgetUnit.TOKENS, 60)
    world.give(BudgetUnit.REQUESTS, 10)
    found = dict(world.reserve(output_tokens=20).trailers())
    assert found == {
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "40",
        "x-ratelimit-reset-tokens": "3600",
        "x-ratelimit-limit-budget-requests": "1000",
        "x-ratelimit-remaining-budget-requests": "9",
        "x-ratelimit-reset-budget-requests": "3600",
    }


def test_compute_is_set_aside_as_it_was_lately() -> None:
    """Nobody knows it before; what was used is charged."""
    world = World()
    money = world.give(BudgetUnit.MONEY, 10**13, amount=10**14)
    world.allowances.learn_rates("p", VERSION, Rates(compute_second=10**12))
    world.reserve().settle(Need(compute_seconds=2.0))
    assert money.current is not None
    assert money.current.used == 2 * 10**12
    world.reserve()
    assert money.current.reserved == 2 * 10**12


def test_a_stream_goes_on_as_long_as_there_is_more() -> None:
    """1. it begins with what is left; 2. others end; 3. it may write all that it wanted."""
    world = World()
    share = world.give(BudgetUnit.TOKENS, 50, stop_streams=True)
    other = world.reserve(output_tokens=30)
    stream = world.reserve(input_tokens=10, output_tokens=40)
    assert stream.stop_after() == 10
    assert share.stretch == 0  # metering has just said that there is no more
    other.settle(Need(output_tokens=0))
    assert stream.stop_after() is None


def test_money_is_told_as_a_decimal() -> None:
    """Without needless zeros."""
    assert amount_text(BudgetUnit.MONEY, 12_500_000_000_000) == "12.5"
    assert amount_text(BudgetUnit.MONEY, 10**12) == "1"
    assert amount_text(BudgetUnit.MONEY, 1) == "0.000000000001"
    assert amount_text(BudgetUnit.MONEY, 0) == "0"
    assert amount_text(BudgetUnit.TOKENS, 100) == "100"
