"""Which rows of a batch belong to requests that other workers have told of, or will.

Nearly all rows are plain: a first attempt that was answered. Looking for each in an index of all requests would cost
more than storing it. So rows that may have rivals have an index of their own (`odd`), in which each new row is looked
for; and only for later attempts the plain rows are searched, by their time: attempts of a request begin within its
longest timeout.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from services.metering.adapters import sql_rows
from services.metering.domain.attempts import Attempt, Loss, RowId, losses
from services.metering.domain.usage import COLUMNS, Kind, Outcome, UsageBatch

_AT_ONCE = 10_000  # parameters of a statement
_SEARCHED_AT_ONCE = 300
_BEFORE_NS = 3600 * 10**9  # the longest timeout of an endpoint
_AFTER_NS = 10 * 10**9  # by which clocks of machines may differ
_FIELDS = f"r.id, r.request_id, {', '.join(f'r.{name}' for name in COLUMNS)}, s.kind, p.row IS NULL"
_JOINED = (
    "JOIN usage_subjects AS s ON s.id = r.subject LEFT JOIN usage_superseded AS p ON p.row = r.id"
)
_COUNT = len(COLUMNS)
_PART, _ATTEMPT, _OUTCOME, _START, _DURATION = range(5)


def found_losses(connection: sa.Connection, batch: UsageBatch, first_row: int) -> Sequence[Loss]:
    """Who gives way once these rows are stored under ids from `first_row` on."""
    ids = sql_rows.split_ids(batch.request_ids)
    stored = _odd(connection, ids)
    retried = np.flatnonzero(batch.columns["attempt"] > 1).tolist()
    wanted = {attempt.key[0] for attempt in stored} | {ids[place] for place in retried}
    if not wanted:
        return ()
    new = list(_new(batch, ids, wanted, first_row))
    stored += _plain(connection, [*stored, *new])
    return losses(stored, new)


def _new(
    batch: UsageBatch, ids: Sequence[bytes], wanted: set[bytes], first_row: int
) -> Iterable[Attempt]:
    for place, request_id in enumerate(ids):
        if request_id in wanted:
            numbers = [int(batch.columns[name][place]) for name in COLUMNS]
            kind = batch.subjects[int(batch.subject[place])].kind
            yield _attempt(first_row + place, request_id, numbers, kind, counts=True)


def _attempt(
    row: int, request_id: bytes, numbers: Sequence[int], kind: int, *, counts: bool
) -> Attempt:
    return Attempt(
        row=RowId(row),
        key=(request_id, numbers[_PART], kind == Kind.SHADOW),
        attempt=numbers[_ATTEMPT],
        outcome=Outcome(numbers[_OUTCOME]),
        start_ns=numbers[_START],
        duration_ns=numbers[_DURATION],
        quantities=tuple(numbers[_DURATION + 1 :]),
        counts=counts,
    )


def _read(found: Iterable[Sequence[Any]]) -> list[Attempt]:
    return [
        _attempt(row[0], row[1], row[2 : 2 + _COUNT], row[2 + _COUNT], counts=bool(row[-1]))
        for row in found
    ]


def _odd(connection: sa.Connection, ids: Sequence[bytes]) -> list[Attempt]:
    found: list[Attempt] = []
    for start in range(0, len(ids), _AT_ONCE):
        some = tuple(ids[start : start + _AT_ONCE])
        marks = ", ".join("?" * len(some))
        statement = (
            f"SELECT {_FIELDS} FROM usage_rows AS r {_JOINED}"  # noqa: S608 - names of ours
            f" WHERE r.odd = 1 AND r.request_id IN ({marks})"
        )
        found += _read(connection.exec_driver_sql(statement, some))
    return found


def _plain(connection: sa.Connection, known: Sequence[Attempt]) -> list[Attempt]:
    """Plain rows of the same requests."""
    spans: dict[bytes, tuple[int, int]] = {}
    for attempt in known:
        low, high = spans.get(attempt.key[0], (attempt.start_ns, attempt.start_ns))
        spans[attempt.key[0]] = min(low, attempt.start_ns), max(high, attempt.start_ns)
    searched = [
        (
            request_id,
            max(low - _BEFORE_NS, 0) >> sql_rows.SLOT_BITS,
            (max(low, min(high, low + _BEFORE_NS)) + _AFTER_NS) >> sql_rows.SLOT_BITS,
        )
        for request_id, (low, high) in spans.items()
    ]
    found: list[Attempt] = []
    for start in range(0, len(searched), _SEARCHED_AT_ONCE):
        some = searched[start : start + _SEARCHED_AT_ONCE]
        marks = ", ".join(["(?, ?, ?)"] * len(some))
        statement = (
            f"WITH RECURSIVE wanted(id, slot, last) AS (VALUES {marks} UNION ALL"  # noqa: S608
            " SELECT id, slot + 1, last FROM wanted WHERE slot < last)"
            f" SELECT {_FIELDS} FROM wanted CROSS JOIN usage_rows AS r"
            f" ON r.odd = 0 AND r.slot = wanted.slot AND r.request_id = wanted.id {_JOINED}"
        )
        values = tuple(value for one in some for value in one)
        found += _read(connection.exec_driver_sql(statement, values))
    return found
