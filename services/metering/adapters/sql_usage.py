"""The usage store in the database: a batch becomes rows, one ledger entry and sums, in one transaction."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from services.metering.adapters import (
    sql_attempts,
    sql_entries,
    sql_rollups,
    sql_rows,
    sql_subjects,
)
from services.metering.adapters.database import Database
from services.metering.adapters.statements import run
from services.metering.domain.attempts import Loss
from services.metering.domain.charge import Rows, Tally, Tariff, count, count_lost
from services.metering.domain.ledger import (
    Entry,
    EntryKind,
    EntryNumber,
    HashedRows,
    outcome_bits,
    outcomes_of,
    usage_postings,
)
from services.metering.domain.period import Grain
from services.metering.domain.price import PriceBook, PriceId
from services.metering.domain.sums import SUMS
from services.metering.domain.usage import Column, Subject, UsageBatch
from services.metering.ports.usage_store import Recorded
from services.rpc.clock import Clock
from services.rpc.errors import FailedPreconditionError

_CHARGED = SUMS.index("charged")
_MICROSECONDS = 1_000_000
_ENTRIES_AT_ONCE = 200
_DROPPED_AT_ONCE = 50_000


def now_us(clock: Clock) -> int:
    """Microseconds since 1970."""
    return int(clock.now().timestamp() * _MICROSECONDS)


class SqlUsage:
    """A UsageStore."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def record(
        self,
        batch: UsageBatch,
        tariff: Callable[[], Tariff],
        committed: Callable[[Recorded], None] | None = None,
    ) -> Recorded:
        at = now_us(self._clock)
        return await self._database.write(
            lambda connection: connection.run_sync(_record, batch, tariff, at), committed
        )

    async def drop_before(self, moment_us: int) -> int:
        at = now_us(self._clock)
        return await self._database.write(
            lambda connection: connection.run_sync(_drop, moment_us, at)
        )


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch on its way into the database."""

    usage: UsageBatch
    tariff: Tariff
    subjects: list[Subject]  # of the batch, then of earlier rows that give way
    numbers: list[int]  # of the subjects, in the database
    subject: Column  # of each row: place in these
    first_row: int
    entry: int

    def places(self, connection: sa.Connection, wanted: Collection[int]) -> dict[int, int]:
        """Where subjects are in `subjects`, by their numbers; those that aren't there are put there."""
        found = {number: place for place, number in enumerate(self.numbers)}
        missing = sorted(set(wanted) - set(found))
        for number, subject in sql_subjects.load(connection, missing).items():
            found[number] = len(self.numbers)
            self.numbers.append(number)
            self.subjects.append(subject)
        return found


def _record(
    connection: sa.Connection, usage: UsageBatch, tariff: Callable[[], Tariff], at: int
) -> Recorded:
    source, wanted = _source(connection, usage, at)
    if usage.first_sequence > wanted:
        raise FailedPreconditionError(
            f"rows {wanted} to {usage.first_sequence - 1} of {usage.source!a} have not come;"
            f" send from {wanted} on",
            reason="USAGE_GAP",
            metadata={"next": str(wanted), "source": usage.source},
        )
    known = wanted - usage.first_sequence
    if known >= len(usage):
        return Recorded(wanted)
    fresh = usage.after(known) if known else usage
    recorded = _store(connection, fresh, tariff(), (source, at))
    run(
        connection,
        "UPDATE usage_sources SET next_sequence = ?, update_us = ?, worker = ?, pool = ? WHERE id = ?",
        (recorded.next_sequence, at, usage.worker, usage.pool, source),
    )
    return recorded


def _source(connection: sa.Connection, usage: UsageBatch, at: int) -> tuple[int, int]:
    """Number of the outbox, and of the row that is wanted next."""
    find = "SELECT id, next_sequence FROM usage_sources WHERE source = ?"
    row = run(connection, find, (usage.source,)).first()
    if row is None:
        run(
            connection,
            "INSERT INTO usage_sources (source, worker, pool, next_sequence, update_us)"
            " VALUES (?, ?, ?, 0, ?)",
            (usage.source, usage.worker, usage.pool, at),
        )
        row = run(connection, find, (usage.source,)).one()
    return row[0], row[1]


def _store(
    connection: sa.Connection, usage: UsageBatch, tariff: Tariff, origin: tuple[int, int]
) -> Recorded:
    batch = _begun(connection, usage, tariff)
    losses = sql_attempts.found_losses(connection, usage, batch.first_row)
    stored_subject = np.array(batch.numbers, dtype=np.int64)[batch.subject]
    sql_rows.insert(connection, usage, batch.entry, batch.first_row, stored_subject)
    tally = _tally(connection, batch, losses)
    source, at = origin
    known = dict(zip(batch.numbers, batch.subjects, strict=True))
    hashed = HashedRows(
        request_ids=usage.request_ids,
        subject=stored_subject,
        columns=usage.columns,
        subjects=known,
        source=usage.source,
        telemetry=usage.telemetry,
        superseded=[(loss.loser.row, loss.winner, loss.attempts) for loss in losses],
    )
    sql_entries.append(
        connection,
        Entry(
            number=EntryNumber(batch.entry),
            kind=EntryKind.USAGE,
            create_us=at,
            source=source,
            first_sequence=usage.first_sequence,
            first_row=batch.first_row,
            row_count=len(usage),
            last_price=tariff.book.last,
            charged=outcome_bits(tariff.charged),
            rows_hash=hashed.digest(),
        ),
        usage_postings(tally.lines, batch.subjects, batch.numbers),
        known,
    )
    if losses:
        run(
            connection,
            "INSERT INTO usage_superseded (row, winner, attempts, entry) VALUES (?, ?, ?, ?)",
            [(loss.loser.row, loss.winner, loss.attempts, batch.entry) for loss in losses],
        )
    spent = _add_sums(connection, batch, tally)
    return Recorded(usage.first_sequence + len(usage), len(usage), len(losses), spent)


def _begun(connection: sa.Connection, usage: UsageBatch, tariff: Tariff) -> _Batch:
    told = sql_subjects.numbers(connection, usage.subjects)
    numbers = list(dict.fromkeys(told))  # a worker may tell of one subject twice
    places = {number: place for place, number in enumerate(numbers)}
    by_number = dict(zip(told, usage.subjects, strict=True))
    number, _ = sql_entries.head(connection)
    return _Batch(
        usage=usage,
        tariff=tariff,
        subjects=[by_number[number] for number in numbers],
        numbers=numbers,
        subject=np.array([places[number] for number in told], dtype=np.int64)[usage.subject],
        first_row=_next_row(connection),
        entry=number + 1,
    )


def _next_row(connection: sa.Connection) -> int:
    # From the entries, which are never dropped: a row's id is not used again after retention.
    row = run(
        connection,
        "SELECT first_row + row_count FROM ledger_entries WHERE row_count > 0"
        " ORDER BY first_row DESC LIMIT 1",
    ).first()
    return int(row[0]) if row else 1


def _tally(connection: sa.Connection, batch: _Batch, losses: Sequence[Loss]) -> Tally:
    tally = Tally()
    rows = Rows(batch.subject, batch.usage.columns)
    own = [loss.loser.row - batch.first_row for loss in losses if loss.loser.row >= batch.first_row]
    if own:
        lost = np.zeros(len(batch.usage), dtype=bool)
        lost[own] = True
        count(tally, rows.taken(np.flatnonzero(~lost)), batch.subjects, batch.tariff)
        count_lost(tally, rows.taken(np.flatnonzero(lost)))
    else:
        count(tally, rows, batch.subjects, batch.tariff)
    earlier = [loss.loser.row for loss in losses if loss.loser.row < batch.first_row]
    if earlier:
        _take_back(connection, batch, tally, earlier)
    return tally


def _take_back(connection: sa.Connection, batch: _Batch, tally: Tally, ids: Sequence[int]) -> None:
    """Earlier rows that give way are taken out again just as they were counted."""
    stored = sql_rows.by_ids(connection, ids)
    rows = stored.rows(batch.places(connection, set(stored.subjects)))
    for entry in sorted(set(stored.entries)):
        chosen = rows.taken(np.flatnonzero(np.array(stored.entries) == entry))
        tariff = entry_tariff(connection, entry, batch.tariff.book)
        count(tally, chosen, batch.subjects, tariff, sign=-1)
        count_lost(tally, chosen)


def entry_tariff(connection: sa.Connection, number: int, book: PriceBook) -> Tariff:
    """By what an entry's rows were charged."""
    last, charged = run(
        connection, "SELECT last_price, charged FROM ledger_entries WHERE number = ?", (number,)
    ).one()
    return Tariff(book.as_of(PriceId(last)), outcomes_of(charged))


def _add_sums(connection: sa.Connection, batch: _Batch, tally: Tally) -> dict[tuple[str, int], int]:
    spent: dict[tuple[str, int], int] = {}
    sums: dict[tuple[int, int], list[int]] = {}
    for (hour, place), values in tally.hours.items():
        sums[hour, batch.numbers[place]] = values
        if values[_CHARGED]:
            key = batch.subjects[place].project, Grain.MONTH.start(hour)
            spent[key] = spent.get(key, 0) + values[_CHARGED]
    sql_rollups.add(connection, sums, _families(connection, batch))
    sql_rollups.add_spending(connection, ((*key, amount) for key, amount in spent.items()))
    return spent


def _families(connection: sa.Connection, batch: _Batch) -> dict[int, int]:
    """Numbers of the families of the batch's subjects."""
    families = list(dict.fromkeys(subject.family for subject in batch.subjects))
    numbers = dict(zip(families, sql_subjects.numbers(connection, families), strict=True))
    return {
        number: numbers[subject.family]
        for number, subject in zip(batch.numbers, batch.subjects, strict=True)
    }


def _drop(connection: sa.Connection, moment_us: int, at: int) -> int:
    """Drop the oldest rows; some at a time, so that recording goes on."""
    before = dropped_upto(connection)
    found = run(
        connection,
        "SELECT number, first_row, row_count FROM ledger_entries"
        " WHERE number > ? AND row_count > 0 AND create_us < ? ORDER BY number LIMIT ?",
        (before, moment_us, _ENTRIES_AT_ONCE),
    ).all()
    dropped, last, end = 0, 0, 0
    for number, first_row, row_count in found:
        dropped, last, end = dropped + row_count, number, first_row + row_count
        if dropped >= _DROPPED_AT_ONCE:
            break
    if dropped:
        run(
            connection,
            "INSERT INTO usage_retention (upto_entry, dropped_rows, create_us) VALUES (?, ?, ?)",
            (last, dropped, at),
        )
        run(connection, "DELETE FROM usage_telemetry WHERE row < ?", (end,))
        run(connection, "DELETE FROM usage_rows WHERE id < ?", (end,))
    return dropped


def dropped_upto(connection: sa.Connection) -> int:
    """The last entry whose rows were dropped; 0: none."""
    return int(
        run(connection, "SELECT coalesce(max(upto_entry), 0) FROM usage_retention").scalar_one()
    )
