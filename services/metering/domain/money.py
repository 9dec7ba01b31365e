"""Amounts of money: whole numbers of 10^-12 of the ledger's currency, exact decimals in words."""

import re

from services.rpc.errors import InvalidArgumentError
from services.rpc.names import shown

PLACES = 12
ONE = 10**PLACES  # of the currency
LARGEST = 10**6 * ONE  # of what anybody may say in one amount

_DECIMAL = re.compile(r"(-?)([0-9]{1,16})(?:\.([0-9]{1,30}))?")


def format_amount(amount: int) -> str:
    """The amount as a decimal without needless zeros: `0`, `-1.5`, `0.0000015`."""
    whole, rest = divmod(abs(amount), ONE)
    sign = "-" if amount < 0 else ""
    if not rest:
        return f"{sign}{whole}"
    return f"{sign}{whole}.{rest:012d}".rstrip("0")


def parse_amount(field: str, text: str, *, places: int = PLACES) -> int:
    """The amount that a decimal says; InvalidArgumentError if it is none, or finer than `places`."""
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise InvalidArgumentError.of_field(
            field, f"{shown(text)} is not a decimal; allowed: such as 12.50"
        )
    sign, whole, fraction = match[1], str(match[2]), str(match[3] or "").rstrip("0")
    if len(fraction) > places:
        raise InvalidArgumentError.of_field(
            field, f"{shown(text)} has {len(fraction)} places; allowed: at most {places}"
        )
    amount = int(whole + fraction.ljust(PLACES, "0"))
    if amount > LARGEST:
        raise InvalidArgumentError.of_field(
            field, f"{shown(text)} is too much; allowed: at most {format_amount(LARGEST)}"
        )
    return -amount if sign else amount
