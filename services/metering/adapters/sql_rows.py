"""Rows of attempts in the database, as columns in memory."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from services.metering.adapters.statements import Among, run
from services.metering.domain.attempts import may_have_rivals
from services.metering.domain.charge import Rows
from services.metering.domain.ledger import scores_text
from services.metering.domain.usage import COLUMNS, ID_BYTES, Column, Outcome, Telemetry, UsageBatch

SLOT_BITS = 33  # a slot is 8.6 s: attempts of one slot lie close together in their index
_FIELDS = ("id", "entry", "subject", "request_id", *COLUMNS)
SELECTED = ", ".join(f"r.{name}" for name in _FIELDS)
_FIRST = _FIELDS.index(COLUMNS[0])
_INSERT = (
    f"INSERT INTO usage_rows ({', '.join(_FIELDS)}, slot, odd)"  # noqa: S608 - names of ours
    f" VALUES ({', '.join('?' * (len(_FIELDS) + 2))})"
)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of the database; `subjects` are numbers of the database."""

    ids: Sequence[int]
    entries: Sequence[int]
    subjects: Sequence[int]
    request_ids: Sequence[bytes]
    columns: dict[str, Any]

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, places: dict[int, int]) -> Rows:
        """As rows whose subjects are places in a list."""
        subject = np.array([places[number] for number in self.subjects], dtype=np.int64)
        return Rows(subject, self.columns)


def stored(found: Iterable[Sequence[Any]]) -> StoredRows:
    """Rows that `SELECTED` gave."""
    by_column: list[Sequence[Any]] = list(zip(*found, strict=True)) or [()] * len(_FIELDS)
    columns = {
        name: np.array(values, dtype=np.int64)
        for name, values in zip(COLUMNS, by_column[_FIRST:], strict=True)
    }
    return StoredRows(by_column[0], by_column[1], by_column[2], by_column[3], columns)


def split_ids(request_ids: bytes) -> list[bytes]:
    """The ids one by one."""
    return [request_ids[start : start + ID_BYTES] for start in range(0, len(request_ids), ID_BYTES)]


def insert(
    connection: sa.Connection, batch: UsageBatch, entry: int, first_row: int, subject: Column
) -> None:
    """Store a batch's rows under ids from `first_row` on; `subject` is each one's, as the database numbers it."""
    count = len(batch)
    columns = [batch.columns[name] for name in COLUMNS]
    odd, slot = odd_of(batch.columns), batch.columns["start_ns"] >> SLOT_BITS
    run(
        connection,
        _INSERT,
        list(
            zip(
                range(first_row, first_row + count),
                [entry] * count,
                subject.tolist(),
                split_ids(batch.request_ids),
                *(column.tolist() for column in columns),
                slot.tolist(),
                odd.tolist(),
                strict=True,
            )
        ),
    )
    _insert_telemetry(connection, batch.telemetry, first_row)


def odd_of(columns: Mapping[str, Column]) -> Column:
    """1 of rows that may have rivals."""
    return _ODD[np.minimum(columns["attempt"], 2) * 8 + columns["outcome"] % 8]


# By attempt (2: later ones) and outcome.
_ODD: Column = np.array(
    [
        outcome in set(Outcome) and may_have_rivals(attempt, Outcome(outcome))
        for attempt in range(3)
        for outcome in range(8)
    ],
    dtype=np.int64,
)


def _insert_telemetry(connection: sa.Connection, told: Sequence[Telemetry], first_row: int) -> None:
    if told:
        told = list({one.row: one for one in told}.values())  # the last one of a row
        run(
            connection,
            "INSERT INTO usage_telemetry"
            " (row, fingerprint, input_characters, output_characters, scores) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (row) DO UPDATE SET fingerprint = excluded.fingerprint,"
            " input_characters = excluded.input_characters,"
            " output_characters = excluded.output_characters, scores = excluded.scores",
            [
                (
                    first_row + one.row,
                    one.fingerprint,
                    one.input_characters,
                    one.output_characters,
                    scores_text(one.scores),
                )
                for one in told
            ],
        )


def of_entries(connection: sa.Connection, first_row: int, count: int) -> StoredRows:
    """Rows with these ids, in their order."""
    return stored(
        run(
            connection,
            f"SELECT {SELECTED} FROM usage_rows AS r WHERE r.id >= ? AND r.id < ? ORDER BY r.id",  # noqa: S608
            (first_row, first_row + count),
        )
    )


def are_found_by(connection: sa.Connection, rows: StoredRows, first_row: int, count: int) -> bool:
    """Whether what the indices go by is what the rows say."""
    there = run(
        connection,
        "SELECT slot, odd FROM usage_rows WHERE id >= ? AND id < ? ORDER BY id",
        (first_row, first_row + count),
    ).all()
    slots = rows.columns["start_ns"] >> SLOT_BITS
    says = zip(slots.tolist(), odd_of(rows.columns).tolist(), strict=True)
    return [tuple(row) for row in there] == list(says)


def read_telemetry(row: Sequence[Any], first_row: int) -> Telemetry:
    """What the database knows of a row's text."""
    return Telemetry(row[0] - first_row, row[1], row[2], row[3], json.loads(row[4]))


def telemetry_of(connection: sa.Connection, first_row: int, count: int) -> list[Telemetry]:
    """What is known of the texts of these rows."""
    return [
        read_telemetry(row, first_row)
        for row in run(
            connection,
            "SELECT row, fingerprint, input_characters, output_characters, scores"
            " FROM usage_telemetry WHERE row >= ? AND row < ? ORDER BY row",
            (first_row, first_row + count),
        )
    ]


def by_ids(connection: sa.Connection, ids: Sequence[int]) -> StoredRows:
    """Rows with these ids, in the order of the ids."""
    return stored(
        run(
            connection,
            f"SELECT {SELECTED} FROM usage_rows AS r"  # noqa: S608
            " WHERE r.id AMONG ? ORDER BY r.id",
            (Among(list(ids)),),
        )
    )
