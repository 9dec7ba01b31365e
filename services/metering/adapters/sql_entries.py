"""The ledger in the database: entries are appended to a chain, with their postings and the balances they change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from services.metering.adapters import sql_subjects
from services.metering.adapters.statements import run
from services.metering.domain.ledger import NO_HASH, Entry, EntryKind, EntryNumber, Posting
from services.metering.domain.price import PriceId
from services.metering.domain.unit import Unit
from services.metering.domain.usage import Subject

_FIELDS = (
    "number",
    "kind",
    "create_us",
    "reason",
    "corrects",
    "request_key",
    "source",
    "first_sequence",
    "first_row",
    "row_count",
    "last_price",
    "charged",
    "rows_hash",
)
ENTRY_FIELDS = ", ".join(f"e.{name}" for name in (*_FIELDS, "hash"))
_INSERT = (
    f"INSERT INTO ledger_entries ({', '.join(_FIELDS)}, hash)"  # noqa: S608 - names of ours
    f" VALUES ({', '.join('?' * (len(_FIELDS) + 1))})"
)
_POST = (
    "INSERT INTO ledger_postings (entry, account, amount, quantity, unit, price, subject)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_PART = 1_000_000  # how many 10^-12 of the currency one of `high` is; `low` is the rest
_BALANCE = (
    "INSERT INTO ledger_balances (account, high, low) VALUES (?, ?, ?)"
    " ON CONFLICT (account) DO UPDATE SET high = ledger_balances.high + excluded.high,"
    " low = ledger_balances.low + excluded.low"
)


def head(connection: sa.Connection) -> tuple[int, bytes]:
    """Number and hash of the newest entry."""
    row = run(
        connection, "SELECT number, hash FROM ledger_entries ORDER BY number DESC LIMIT 1"
    ).first()
    return (row[0], row[1]) if row else (0, NO_HASH)


def append(
    connection: sa.Connection,
    entry: Entry,
    postings: Sequence[Posting],
    subjects: Mapping[int, Subject] = MappingProxyType({}),
) -> tuple[Entry, bytes]:
    """Append an entry under the next number; as it is stored, and its hash."""
    number, before = head(connection)
    stored = replace(entry, number=EntryNumber(number + 1))
    own = stored.digest(before, postings, subjects)
    run(connection, _INSERT, (*(getattr(stored, name) for name in _FIELDS), own))
    accounts = sql_subjects.account_numbers(connection, [p.account for p in postings])
    if postings:
        run(
            connection,
            _POST,
            [
                (
                    stored.number,
                    accounts[p.account],
                    p.amount,
                    p.quantity,
                    p.unit or 0,
                    p.price,
                    p.subject,
                )
                for p in postings
            ],
        )
        _add_to_balances(connection, accounts, postings)
    return stored, own


def _add_to_balances(
    connection: sa.Connection, accounts: dict[str, int], postings: Iterable[Posting]
) -> None:
    sums: dict[str, int] = {}
    for posting in postings:
        sums[posting.account] = sums.get(posting.account, 0) + posting.amount
    run(
        connection,
        _BALANCE,
        [(accounts[account], *divmod(amount, _PART)) for account, amount in sums.items()],
    )


def balances(connection: sa.Connection, prefix: str = "") -> dict[str, int]:
    """Running sums of the accounts whose names begin so."""
    found = run(
        connection,
        "SELECT a.name, b.high, b.low FROM ledger_balances AS b"
        " JOIN ledger_accounts AS a ON a.id = b.account WHERE substr(a.name, 1, ?) = ? ORDER BY a.name",
        (len(prefix), prefix),
    )
    return {name: high * _PART + low for name, high, low in found}


def summed_balances(connection: sa.Connection) -> dict[str, int]:
    """The same sums of all accounts, from the postings."""
    found = run(
        connection,
        "SELECT a.name, b.high, b.low FROM (SELECT account, sum(amount / 1000000) AS high,"
        " sum(amount % 1000000) AS low FROM ledger_postings GROUP BY account) AS b"
        " JOIN ledger_accounts AS a ON a.id = b.account",
    )
    return {name: high * _PART + low for name, high, low in found}


def read_entries(found: Iterable[Sequence[Any]]) -> list[tuple[Entry, bytes]]:
    """Entries and their hashes, of rows that `ENTRY_FIELDS` gave."""
    return [
        (
            Entry(
                number=EntryNumber(row[0]),
                kind=EntryKind(row[1]),
                create_us=row[2],
                reason=row[3],
                corrects=row[4],
                request_key=row[5],
                source=row[6],
                first_sequence=row[7],
                first_row=row[8],
                row_count=row[9],
                last_price=PriceId(row[10]),
                charged=row[11],
                rows_hash=row[12],
            ),
            row[13],
        )
        for row in found
    ]


def one_entry(connection: sa.Connection, number: int) -> Entry:
    """An entry that there is."""
    found = run(
        connection,
        f"SELECT {ENTRY_FIELDS} FROM ledger_entries AS e WHERE e.number = ?",  # noqa: S608
        (number,),
    )
    return read_entries([found.one()])[0][0]


def postings_of(connection: sa.Connection, first: int, last: int) -> dict[int, list[Posting]]:
    """Postings of the entries from `first` to `last`, in the order in which they were written."""
    found: dict[int, list[Posting]] = {}
    for entry, account, amount, quantity, unit, price, subject in run(
        connection,
        "SELECT p.entry, a.name, p.amount, p.quantity, p.unit, p.price, p.subject"
        " FROM ledger_postings AS p LEFT JOIN ledger_accounts AS a ON a.id = p.account"
        " WHERE p.entry >= ? AND p.entry <= ? ORDER BY p.id",
        (first, last),
    ):
        found.setdefault(entry, []).append(
            Posting(
                account or "",
                amount,
                quantity,
                Unit(unit) if unit in _UNITS else None,
                PriceId(price),
                subject,
            )
        )
    return found


_UNITS = frozenset(Unit)
