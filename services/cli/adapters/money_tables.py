"""What tables show of prices and the ledger."""

from collections.abc import Callable
from decimal import Decimal

from inferplane.metering.v1 import (
    ledger_pb2,
    ledger_service_pb2,
    machine_price_pb2,
    price_pb2,
)

from services.cli.adapters.tables import when
from services.cli.domain.account_reference import short_key
from services.cli.domain.amounts import plain, readable

_MICRO = 10**6


def unit_word(unit: int) -> str:
    """A unit as people write it: `input-token`."""
    name = price_pb2.PriceUnit.Name(price_pb2.PriceUnit.ValueType(unit))
    return name.removeprefix("PRICE_UNIT_").lower().replace("_", "-")


def _entry_word(kind: int) -> str:
    name = ledger_pb2.LedgerEntryKind.Name(ledger_pb2.LedgerEntryKind.ValueType(kind))
    return name.removeprefix("LEDGER_ENTRY_KIND_").lower()


def _of(price: price_pb2.Price) -> str:
    if not price.model:
        return "any model"
    return f"{price.model}@{price.version}" if price.version else price.model


def prices(currency: str) -> list[tuple[str, Callable[[price_pb2.Price], str]]]:
    """Columns of prices in this currency."""
    return [
        ("UNIT", lambda price: unit_word(price.unit)),
        (f"{currency} FOR ONE", lambda price: readable(price.amount)),
        ("MODEL", _of),
        ("PROJECT", lambda price: price.project or "any"),
        ("FROM", lambda price: when(price.valid_from)),
        ("PRICE", lambda price: price.name.removeprefix("prices/")),
    ]


def price_fields(price: price_pb2.Price) -> dict[str, str]:
    """One price."""
    return {
        "price": price.name.removeprefix("prices/"),
        "unit": unit_word(price.unit),
        "for one": readable(price.amount),
        "model": _of(price),
        "project": price.project or "any",
        "from": when(price.valid_from),
    }


MACHINES: list[tuple[str, Callable[[machine_price_pb2.MachinePrice], str]]] = [
    ("POOL", lambda price: price.pool),
    ("FOR AN HOUR", lambda price: readable(price.hourly_amount)),
    ("MACHINES", lambda price: str(price.machines)),
    ("FROM", lambda price: when(price.valid_from)),
]


def machine_fields(price: machine_price_pb2.MachinePrice) -> dict[str, str]:
    """What a pool's machines cost."""
    return {
        "pool": price.pool,
        "for an hour": readable(price.hourly_amount),
        "machines": str(price.machines),
        "from": when(price.valid_from),
    }


def entry_fields(entry: ledger_pb2.LedgerEntry) -> dict[str, str]:
    """One entry that a person made."""
    return {
        "entry": entry.name.removeprefix("ledgerEntries/"),
        "kind": _entry_word(entry.kind),
        "reason": entry.reason,
        "corrects": entry.corrects.removeprefix("ledgerEntries/"),
        "amounts": ", ".join(f"{p.account} {readable(p.amount)}" for p in entry.postings),
        "made": when(entry.create_time),
    }


ENTRY_HEADERS = ("ENTRY", "TIME", "KIND", "ACCOUNT", "AMOUNT", "QUANTITY", "UNIT", "WHAT")


def entry_rows(entry: ledger_pb2.LedgerEntry) -> list[list[str]]:
    """A row for each posting, or one that says what else the entry is, such as a price."""
    first = [
        entry.name.removeprefix("ledgerEntries/"),
        when(entry.create_time),
        _entry_word(entry.kind),
    ]
    if not entry.postings:
        return [[*first, "", "", "", "", entry.reason]]
    return [
        [
            *(first if number == 0 else [""] * 3),
            posting.account,
            readable(posting.amount),
            _quantity(posting),
            unit_word(posting.unit) if posting.unit else "",
            _what(posting) or entry.reason,
        ]
        for number, posting in enumerate(entry.postings)
    ]


def _quantity(posting: ledger_pb2.Posting) -> str:
    """In units as they are priced: compute is counted in microseconds."""
    if not posting.unit:
        return ""
    if posting.unit == price_pb2.PRICE_UNIT_COMPUTE_SECOND:
        return plain(Decimal(posting.quantity) / _MICRO)
    return f"{posting.quantity:,}"


def _what(posting: ledger_pb2.Posting) -> str:
    """What was used by which key."""
    version = short_key(posting.version).removeprefix("models/").replace("/versions/", "@")
    told = (posting.endpoint and f"endpoint {posting.endpoint}", version, posting.key)
    return ", ".join(part for part in told if part)


def balance_fields(found: ledger_service_pb2.GetBalanceResponse) -> dict[str, str]:
    """What a project owes, and of what that is made."""
    owed = f"{readable(found.owed) or '0'} {found.currency}"
    return {"owed": owed, **{a.account: readable(a.amount) for a in found.accounts}}


def proof_fields(found: ledger_service_pb2.VerifyLedgerResponse) -> dict[str, str]:
    """What a verification counted and found."""
    dropped = (
        f"; {found.dropped_rows:,} more were dropped by retention" if found.dropped_rows else ""
    )
    return {
        "ledger": "everything adds up" if found.ok else f"{found.problem_count:,} things are wrong",
        "entries": f"{found.entries:,}, each sums to 0 and holds the hash of the one before it"
        if found.ok
        else f"{found.entries:,}",
        "postings": f"{found.postings:,}",
        "requests": f"{found.rows:,} counted again{dropped}",
        "newest": f"{found.head_entry.removeprefix('ledgerEntries/')}:{found.head_hash}"
        if found.head_entry
        else "none yet",
    }
