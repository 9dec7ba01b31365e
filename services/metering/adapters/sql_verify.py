"""Verifies the ledger in the database: entries are computed again from rows and prices, sums from what they sum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import sqlalchemy as sa

from services.metering.adapters import (
    sql_entries,
    sql_prices,
    sql_rows,
    sql_subjects,
    sql_sums_check,
)
from services.metering.adapters.sql_usage import dropped_upto
from services.metering.adapters.statements import run
from services.metering.domain.charge import Tally, Tariff, count, count_lost
from services.metering.domain.ledger import (
    NO_HASH,
    Entry,
    EntryKind,
    HashedRows,
    Posting,
    outcomes_of,
    usage_postings,
)
from services.metering.domain.price import PriceBook, PriceId
from services.metering.domain.sums import SUMS
from services.metering.domain.usage import Subject
from services.metering.domain.verification import Verification

_ENTRIES_AT_ONCE = 50
# What values raise that are none of those that are written.
_UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, sa.exc.NoResultFound)


@dataclass(slots=True)
class _Walk:
    """A verification on its way along the chain."""

    connection: sa.Connection
    found: Verification
    subjects: Mapping[int, Subject]
    book: PriceBook
    dropped: int  # up to this entry rows were dropped
    sources: Mapping[int, str]
    before: bytes = NO_HASH
    number: int = 0
    next_row: int = 1
    sequences: dict[int, int] = field(default_factory=dict)  # by source
    prices: list[str] = field(default_factory=list)
    # By subject: sums of all rows, and of their requests times their hours.
    totals: dict[int, list[int]] = field(default_factory=dict)
    moments: dict[int, int] = field(default_factory=dict)
    books: dict[int, PriceBook] = field(default_factory=dict)

    def tariff(self, entry: Entry) -> Tariff:
        """By what an entry's rows were charged."""
        book = self.books.get(entry.last_price)
        if book is None:
            book = self.books[entry.last_price] = self.book.as_of(PriceId(entry.last_price))
        return Tariff(book, outcomes_of(entry.charged))


def verify(connection: sa.Connection, known_number: int, known_hash: bytes) -> Verification:
    """Look at everything. All in one read transaction.

    Args:
        connection: in that transaction.
        known_number: an entry whose hash was noted before; 0: none.
        known_hash: that hash.
    """
    found = Verification()
    try:
        _look(connection, found, known_number, known_hash)
    except _UNREADABLE as error:
        found.add("UNREADABLE", "database", f"a value that was never written: {error}")
    return found


def _look(
    connection: sa.Connection, found: Verification, known_number: int, known_hash: bytes
) -> None:
    walk = _Walk(
        connection=connection,
        found=found,
        subjects=sql_subjects.load(connection),
        book=PriceBook(sql_prices.load_prices(connection)),
        dropped=dropped_upto(connection),
        sources=sql_subjects.sources(connection),
    )
    known = NO_HASH
    while entries := _entries_after(connection, walk.number):
        postings = sql_entries.postings_of(connection, walk.number + 1, entries[-1][0].number)
        for entry, own in entries:
            _check_entry(walk, entry, own, postings.get(entry.number, []))
            if entry.number == known_number:
                known = own
    found.head_number, found.head_hash = walk.number, walk.before
    if known_number and known != known_hash:
        found.add(
            "HISTORY_REWRITTEN",
            f"ledgerEntries/{known_number}",
            "its hash is not the one that was noted",
        )
    _check_prices(walk)
    sql_sums_check.check_sources(connection, found, walk.sequences)
    sql_sums_check.check_balances(connection, found)
    sql_sums_check.check_rollups(connection, found, None if walk.dropped else walk.totals)
    if not walk.dropped:
        sql_sums_check.check_moments(connection, found, walk.moments)
    sql_sums_check.check_duplicates(connection, found)
    _check_strays(walk)
    _check_dropped(walk)


def _entries_after(connection: sa.Connection, number: int) -> list[tuple[Entry, bytes]]:
    return sql_entries.read_entries(
        run(
            connection,
            f"SELECT {sql_entries.ENTRY_FIELDS} FROM ledger_entries AS e WHERE e.number > ?"  # noqa: S608
            " ORDER BY e.number LIMIT ?",
            (number, _ENTRIES_AT_ONCE),
        )
    )


def _check_entry(walk: _Walk, entry: Entry, own: bytes, postings: Sequence[Posting]) -> None:
    found, name = walk.found, f"ledgerEntries/{entry.number}"
    if entry.number != walk.number + 1:
        found.add("MISSING_ENTRY", name, f"the entry before it is {walk.number}")
    if entry.digest(walk.before, postings, walk.subjects) != own:
        found.add("BROKEN_CHAIN", name, "its hash is not that of what it says")
    _check_balance(walk, name, postings)
    if entry.kind is EntryKind.USAGE:
        _check_usage(walk, entry, name, postings)
    elif entry.kind is EntryKind.PRICE:
        walk.prices.append(entry.reason)
    walk.before, walk.number = own, entry.number
    found.entries += 1
    found.postings += len(postings)


def _check_balance(walk: _Walk, name: str, postings: Sequence[Posting]) -> None:
    total = sum(posting.amount for posting in postings)
    if total:
        walk.found.add("UNBALANCED", name, f"its postings sum to {total}, not to 0")
    quantities: dict[int, int] = {}
    for posting in postings:
        unit = posting.unit or 0
        quantities[unit] = quantities.get(unit, 0) + posting.quantity
    for unit, quantity in quantities.items():
        if quantity:
            walk.found.add("UNBALANCED", name, f"its quantities of unit {unit} sum to {quantity}")


def _check_usage(walk: _Walk, entry: Entry, name: str, postings: Sequence[Posting]) -> None:
    wanted = walk.sequences.get(entry.source, 0)
    if entry.first_sequence != wanted:
        walk.found.add(
            "SOURCE_MISMATCH", name, f"its rows begin with {entry.first_sequence}, not {wanted}"
        )
    walk.sequences[entry.source] = entry.first_sequence + entry.row_count
    if entry.first_row != walk.next_row:
        walk.found.add("ROWS_CHANGED", name, f"its rows begin at {entry.first_row}")
    walk.next_row = entry.first_row + entry.row_count
    if entry.number <= walk.dropped:
        walk.found.dropped_rows += entry.row_count
        return
    rows = sql_rows.of_entries(walk.connection, entry.first_row, entry.row_count)
    walk.found.rows += len(rows)
    if len(rows) != entry.row_count or set(rows.entries) != {entry.number}:
        walk.found.add("ROWS_CHANGED", name, f"{len(rows)} of its {entry.row_count} rows are there")
        return
    if not set(rows.subjects) <= set(walk.subjects):
        walk.found.add("ROWS_CHANGED", name, "a subject of its rows is gone")
        return
    _check_rows(walk, entry, rows, postings)


def _check_rows(
    walk: _Walk, entry: Entry, rows: sql_rows.StoredRows, postings: Sequence[Posting]
) -> None:
    name = f"ledgerEntries/{entry.number}"
    superseded = run(
        walk.connection,
        "SELECT row, winner, attempts FROM usage_superseded WHERE entry = ? ORDER BY row",
        (entry.number,),
    ).all()
    hashed = HashedRows(
        request_ids=b"".join(rows.request_ids),
        subject=np.array(rows.subjects, dtype=np.int64),
        columns=rows.columns,
        subjects=walk.subjects,
        source=walk.sources.get(entry.source, ""),
        telemetry=sql_rows.telemetry_of(walk.connection, entry.first_row, entry.row_count),
        superseded=[(row[0], row[1], row[2]) for row in superseded],
    )
    if hashed.digest() != entry.rows_hash:
        walk.found.add("ROWS_CHANGED", name, "its rows are not those that were recorded")
    if not sql_rows.are_found_by(walk.connection, rows, entry.first_row, entry.row_count):
        walk.found.add("ROWS_CHANGED", name, "its rows can't be found as they should")
    _recount(walk, entry, rows, ([row[0] for row in superseded], postings))


def _recount(
    walk: _Walk,
    entry: Entry,
    rows: sql_rows.StoredRows,
    told: tuple[Sequence[int], Sequence[Posting]],
) -> None:
    """Compute the entry's postings again."""
    superseded, postings = told
    earlier = sql_rows.by_ids(walk.connection, [row for row in superseded if row < entry.first_row])
    numbers = sorted({*rows.subjects, *earlier.subjects})
    places = {number: place for place, number in enumerate(numbers)}
    subjects = [walk.subjects[number] for number in numbers]
    tally = Tally()
    lost = np.isin(np.array(rows.ids), np.array(superseded))
    own = rows.rows(places)
    count(tally, own.taken(np.flatnonzero(~lost)), subjects, walk.tariff(entry))
    count_lost(tally, own.taken(np.flatnonzero(lost)))
    for number in sorted(set(earlier.entries)):
        chosen = earlier.rows(places).taken(np.flatnonzero(np.array(earlier.entries) == number))
        first = sql_entries.one_entry(walk.connection, number)
        count(tally, chosen, subjects, walk.tariff(first), sign=-1)
        count_lost(tally, chosen)
    _add_totals(walk, tally, numbers)
    if len(earlier) + int(lost.sum()) < len(superseded):
        return  # a row that gave way here was dropped: its entry can't be taken back again
    expected = usage_postings(tally.lines, subjects, numbers)
    _compare(walk, entry, expected, postings)


def _add_totals(walk: _Walk, tally: Tally, numbers: Sequence[int]) -> None:
    for (hour, place), sums in tally.hours.items():
        number = numbers[place]
        totals = walk.totals.setdefault(number, [0] * len(SUMS))
        for at, value in enumerate(sums):
            totals[at] += value
        walk.moments[number] = walk.moments.get(number, 0) + hour * sql_sums_check.weight(sums)


def _compare(
    walk: _Walk, entry: Entry, expected: Sequence[Posting], stored: Sequence[Posting]
) -> None:
    def sums(postings: Sequence[Posting]) -> dict[tuple[object, ...], tuple[int, int]]:
        return {(p.account, p.unit, p.price, p.subject): (p.quantity, p.amount) for p in postings}

    name = f"ledgerEntries/{entry.number}"
    should, there = sums(expected), sums(stored)
    for key in sorted({*should, *there}, key=str):
        quantity, amount = should.get(key, (0, 0))
        has_quantity, has_amount = there.get(key, (0, 0))
        if quantity != has_quantity:
            walk.found.add(
                "QUANTITY_MISMATCH",
                name,
                f"{key[0]}: its rows count {quantity}, posted were {has_quantity}",
            )
        elif amount != has_amount:
            walk.found.add(
                "AMOUNT_MISMATCH",
                name,
                f"{key[0]}: its rows cost {amount}, posted were {has_amount} (10^-12)",
            )


def _check_prices(walk: _Walk) -> None:
    there = [
        *(price.text for price in walk.book.prices),
        *(price.text for price in sql_prices.load_machine_prices(walk.connection)),
    ]
    for text in sorted(set(there) ^ set(walk.prices)):
        walk.found.add("PRICE_CHANGED", text.split(" ")[0], f"as made or as it is now: {text}")


def _check_strays(walk: _Walk) -> None:
    """Rows, postings and the like that no entry knows of."""
    for table, condition in (
        ("usage_rows", f"id >= {walk.next_row} OR id < 1"),
        ("ledger_postings", "entry NOT IN (SELECT number FROM ledger_entries)"),
        ("usage_superseded", "entry NOT IN (SELECT number FROM ledger_entries)"),
        ("usage_telemetry", f"row >= {walk.next_row} OR row < 1"),
    ):
        strays = run(
            walk.connection,
            f"SELECT count(*) FROM {table} WHERE {condition}",  # noqa: S608 - names of ours
        ).scalar_one()
        if strays:
            walk.found.add("ROWS_CHANGED", table, f"{strays} rows that belong to no entry")


def _check_dropped(walk: _Walk) -> None:
    """Retention has dropped what it says, and nothing else."""
    told = run(
        walk.connection, "SELECT coalesce(sum(dropped_rows), 0) FROM usage_retention"
    ).scalar_one()
    there = run(
        walk.connection, "SELECT count(*) FROM usage_rows WHERE entry <= ?", (walk.dropped,)
    ).scalar_one()
    if told != walk.found.dropped_rows or there:
        walk.found.add(
            "ROWS_CHANGED",
            "usage_retention",
            f"{told} rows are said to be dropped, {walk.found.dropped_rows} are, {there} are still there",
        )
