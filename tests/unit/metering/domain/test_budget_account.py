"""What a budget's window stands at."""

import pytest

from services.metering.domain.budget_account import Account, Lease, portion


@pytest.mark.parametrize(
    ("case", "given"),
    [
        pytest.param(
            {"available": 1000, "needed": 10, "wanted": 50, "least": 10, "sharers": 1},
            60,
            id="where much is left it is what was asked for",
        ),
        pytest.param(
            {"available": 1000, "needed": 0, "wanted": 9000, "least": 0, "sharers": 4},
            125,
            id="one of four gets an eighth at most, so that others find something",
        ),
        pytest.param(
            {"available": 7, "needed": 0, "wanted": 9000, "least": 0, "sharers": 4},
            0,
            id="near the end nothing is given in advance",
        ),
        pytest.param(
            {"available": 50, "needed": 300, "wanted": 0, "least": 50, "sharers": 4},
            50,
            id="requests that wait get all there is",
        ),
        pytest.param(
            {"available": 50, "needed": 300, "wanted": 0, "least": 51, "sharers": 4},
            0,
            id="what is too little for any of them stays",
        ),
        pytest.param(
            {"available": -5, "needed": 1, "wanted": 1, "least": 0, "sharers": 1},
            0,
            id="a budget that was lowered gives nothing",
        ),
    ],
)
def test_portions_are_big_first_and_small_near_the_end(case: dict[str, int], given: int) -> None:
    """What one holder gets of what is left."""
    assert portion(**case) == given


def test_a_lease_counts_in_full_until_its_holder_says_what_it_used() -> None:
    """1. two leases; 2. one holder goes away: what it held is unreported; 3. it is given up: still nobody's."""
    account = Account("u", 0, leases={"a": Lease(granted=100, used=30), "b": Lease(granted=50)})
    assert (account.used, account.committed) == (30, 150)
    assert (account.held({"a", "b"}), account.unreported({"a", "b"})) == (120, 0)
    assert (account.held({"b"}), account.unreported({"b"})) == (50, 70)
    account.fold("a")
    assert (account.used, account.committed, account.unreported({"b"})) == (30, 150, 70)


def test_what_was_used_beyond_the_grant_counts() -> None:
    """A holder that could not ask says more than it was granted: that much is gone."""
    account = Account("u", 0, leases={"a": Lease(granted=10, used=25)})
    assert (account.committed, account.held({"a"})) == (25, 0)


def test_a_closed_lease_is_what_it_used() -> None:
    """What it held is free again; what it used and refused stays."""
    account = Account("u", 0, leases={"a": Lease(granted=100, used=30, refused=2, serial=7)})
    account.close("a")
    assert (account.committed, account.refusals, account.closed) == (30, 2, {"a": 7})
