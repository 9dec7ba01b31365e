"""Which rows of a batch belong to requests that other workers have told of, or will.

Nearly all rows are plain: a first attempt that was answered. Looking for each in an index of all requests would cost
more than storing it. So rows that may have rivals have an index of their own (`odd`), in which each new row is looked
for; and only for later attempts the plain rows are searched, by their time: attempts of a request begin within its
longest timeout.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from services.metering.adapters import sql_rows
from services.metering.adapters.statements import POSTGRES, run
from services.metering.domain.attempts import Attempt, Loss, RowId, losses
from services.metering.domain.usage import COLUMNS, ID_BYTES, Kind, Outcome, UsageBatch

_BEFORE_NS = 3600 * 10**9  # the longest timeout of an endpoint
_AFTER_NS = 10 * 10**9  # by which clocks of machines may differ
_FIELDS = f"r.id, r.request_id, {', '.join(f'r.{name}' for name in COLUMNS)}, s.kind, p.row IS NULL"
_JOINED = (
    "JOIN usage_subjects AS s ON s.id = r.subject LEFT JOIN usage_superseded AS p ON p.row = r.id"
)
# One statement for any number of ids, which come as one value: each connection keeps the statements that it has
# prepared, and those of many lengths, with a parameter for each id, take tens of MiB.
_ODD = (
    "WITH RECURSIVE place(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM place WHERE n + 1 < ?1),"  # noqa: S608
    f" wanted(id) AS (SELECT DISTINCT substr(?2, n * {ID_BYTES} + 1, {ID_BYTES}) FROM place)"
    f" SELECT {_FIELDS} FROM wanted CROSS JOIN usage_rows AS r"
    f" ON r.odd = 1 AND r.request_id = wanted.id {_JOINED}"
)
_PLAIN = (
    "WITH RECURSIVE wanted(id, slot, last) AS ("  # noqa: S608
    f"SELECT substr(?1, key * {ID_BYTES} + 1, {ID_BYTES}), json_extract(value, '$[0]'),"
    " json_extract(value, '$[1]') FROM json_each(?2)"
    " UNION ALL SELECT id, slot + 1, last FROM wanted WHERE slot < last)"
    f" SELECT {_FIELDS} FROM wanted CROSS JOIN usage_rows AS r"
    f" ON r.odd = 0 AND r.slot = wanted.slot AND r.request_id = wanted.id {_JOINED}"
)
# The same for Postgres. `OFFSET 0` keeps it from joining otherwise than id by id, whatever it expects to find.
_ODD_IN_POSTGRES = (
    f"SELECT {_FIELDS} FROM unnest(?::bytea[]) AS wanted(id) JOIN LATERAL"  # noqa: S608
    " (SELECT * FROM usage_rows AS u WHERE u.odd = 1 AND u.request_id = wanted.id OFFSET 0) AS r"
    f" ON true {_JOINED}"
)
_PLAIN_IN_POSTGRES = (
    f"SELECT {_FIELDS} FROM unnest(?::bytea[], ?::bigint[], ?::bigint[]) AS wanted(id, first, last)"  # noqa: S608
    " JOIN LATERAL (SELECT u.* FROM generate_series(wanted.first, wanted.last) AS slots(slot),"
    " LATERAL (SELECT * FROM usage_rows AS p WHERE p.odd = 0 AND p.slot = slots.slot"
    f" AND p.request_id = wanted.id OFFSET 0) AS u OFFSET 0) AS r ON true {_JOINED}"
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
    if not ids:
        return []
    if connection.dialect.name == POSTGRES:
        return _read(run(connection, _ODD_IN_POSTGRES, (list(set(ids)),)))
    return _read(run(connection, _ODD, (len(ids), b"".join(ids))))


def _plain(connection: sa.Connection, known: Sequence[Attempt]) -> list[Attempt]:
    """Plain rows of the same requests."""
    spans: dict[bytes, tuple[int, int]] = {}
    for attempt in known:
        low, high = spans.get(attempt.key[0], (attempt.start_ns, attempt.start_ns))
        spans[attempt.key[0]] = min(low, attempt.start_ns), max(high, attempt.start_ns)
    slots = [
        (
            max(low - _BEFORE_NS, 0) >> sql_rows.SLOT_BITS,
            (max(low, min(high, low + _BEFORE_NS)) + _AFTER_NS) >> sql_rows.SLOT_BITS,
        )
        for low, high in spans.values()
    ]
    if connection.dialect.name == POSTGRES:
        firsts, lasts = ([slot[place] for slot in slots] for place in (0, 1))
        return _read(run(connection, _PLAIN_IN_POSTGRES, (list(spans), firsts, lasts)))
    return _read(run(connection, _PLAIN, (b"".join(spans), json.dumps(slots))))
