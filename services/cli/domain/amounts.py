"""Amounts of money as people type and read them: decimals, never floats."""

from decimal import Context, Decimal, DecimalException, Inexact

from services.cli.domain.exit_code import UsageError

# More digits than any amount has: what does not fit is refused, not rounded.
_EXACT = Context(prec=60, traps=[Inexact, *Context().traps])
_MOST_PLACES = 12  # of a price, as the price book has them


def parse_amount(option: str, text: str) -> Decimal:
    """`12.50` as a decimal; nothing that is none."""
    try:
        found = Decimal(text)
    except DecimalException as error:
        raise UsageError(f"{option} {text!r}: allowed: a decimal such as 12.50") from error
    if not found.is_finite():
        raise UsageError(f"{option} {text!r}: allowed: a decimal such as 12.50")
    return found


def price_of_one(option: str, text: str, per: int) -> str:
    """What one unit costs if `per` of them cost `text`, exactly."""
    amount = parse_amount(option, text)
    try:
        each = _EXACT.divide(amount, Decimal(per))
        return plain(_EXACT.quantize(each, Decimal(1).scaleb(-_MOST_PLACES)))
    except DecimalException as error:
        raise UsageError(
            f"{option} {text!r} for {per} has more than {_MOST_PLACES} places for one"
        ) from error


def plain(amount: Decimal) -> str:
    """A decimal without exponent and without zeros at its end."""
    text = f"{amount:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def readable(text: str) -> str:
    """A decimal of the ledger as tables show it: plain; empty if there is none."""
    return plain(Decimal(text)) if text else ""
