"""Amounts are exact, in and out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metering.domain.money import LARGEST, format_amount, parse_amount
from services.rpc.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        pytest.param("0", 0, id="nothing"),
        pytest.param("1", 10**12, id="whole"),
        pytest.param("-1.5", -15 * 10**11, id="negative"),
        pytest.param("0.0000015", 1_500_000, id="price of a token"),
        pytest.param("0.000000000001", 1, id="the least"),
        pytest.param("12.500", 125 * 10**11, id="zeros at the end"),
    ],
)
def test_a_decimal_is_read(text: str, amount: int) -> None:
    """Decimals are read without loss."""
    assert parse_amount("amount", text) == amount


@pytest.mark.parametrize(
    "text", ["", " 1", "1e3", "NaN", "1,5", ".5", "1.", "+1", "0.0000000000001", "1000001", "١"]
)
def test_what_is_no_decimal_is_refused(text: str) -> None:
    """Anything else is refused with the field's name."""
    with pytest.raises(InvalidArgumentError) as caught:
        parse_amount("amount", text)
    assert caught.value.violations[0].field == "amount"


def test_places_are_limited() -> None:
    """A price of compute seconds has at most 6 places."""
    assert parse_amount("amount", "0.000277", places=6) == 277_000_000
    with pytest.raises(InvalidArgumentError):
        parse_amount("amount", "0.0000001", places=6)


@given(st.integers(-LARGEST, LARGEST))
def test_what_is_written_is_read_again(amount: int) -> None:
    """Writing and reading give the same amount."""
    assert parse_amount("amount", format_amount(amount)) == amount
