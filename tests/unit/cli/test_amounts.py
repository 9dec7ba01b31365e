"""Amounts of money: exact, and never floats."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.domain.amounts import parse_amount, plain, price_of_one, readable
from services.cli.domain.exit_code import UsageError


@pytest.mark.parametrize(
    ("text", "per", "one"),
    [
        ("0.40", 1_000_000, "0.0000004"),
        ("12.50", 1, "12.5"),
        ("1e-3", 1000, "0.000001"),
        ("0", 1000, "0"),
        ("100", 1, "100"),
    ],
)
def test_price_of_one(text: str, per: int, one: str) -> None:
    """What many cost, divided without a rest."""
    assert price_of_one("AMOUNT", text, per) == one


@pytest.mark.parametrize(("text", "per"), [("1", 3), ("0.0000000000001", 1), ("1", 7_000_000)])
def test_a_price_that_has_no_end_is_refused(text: str, per: int) -> None:
    """It would be rounded, and no ledger may be."""
    with pytest.raises(UsageError, match="more than 12 places"):
        price_of_one("AMOUNT", text, per)


@pytest.mark.parametrize("text", ["", "much", "NaN", "Infinity", "-Infinity", "1,5", "$1"])
def test_what_is_no_amount(text: str) -> None:
    """Is refused with the option."""
    with pytest.raises(UsageError, match=r"--money .*allowed: a decimal"):
        parse_amount("--money", text)


@given(st.decimals(min_value=-(10**12), max_value=10**12, places=12))
def test_plain_decimals_lose_nothing(amount: Decimal) -> None:
    """Whatever the amount, its text is it: without an exponent, without zeros at its end."""
    text = plain(amount)
    assert Decimal(text) == amount
    assert "E" not in text
    assert not ("." in text and text.endswith("0"))


def test_what_is_not_there_is_not_told() -> None:
    """An empty amount is no zero."""
    assert (readable(""), readable("0.000"), readable("1.50")) == ("", "0", "1.5")
