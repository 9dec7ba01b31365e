"""Rows of requests themselves in the database: one request, or page by page for exports."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from services.metering.adapters import sql_rows, sql_subjects
from services.metering.adapters.statements import Among, run
from services.metering.domain.period import hour_of
from services.metering.domain.report import HOUR_NS, UsageFilter
from services.metering.domain.usage import Kind
from services.metering.ports.report_store import RequestRows

# Of the request, as rows that gave way tell; none did: 0.
_ATTEMPTS = "coalesce((SELECT max(w.attempts) FROM usage_superseded AS w WHERE w.winner = r.id), 0)"
_WORKER = (
    "(SELECT o.worker FROM ledger_entries AS e JOIN usage_sources AS o ON o.id = e.source"
    " WHERE e.number = r.entry)"
)
_FIELDS = f"{sql_rows.SELECTED}, {_ATTEMPTS}, {_WORKER}"
_WORDS = ("project", "key", "endpoint", "model", "version")


def after(
    connection: sa.Connection, usage: UsageFilter, row: int, last_entry: int, most: int
) -> RequestRows:
    """Rows with ids after that one as they were at an entry, at most so many."""
    found, values = ["r.id > ?", "r.entry <= ?"], list[Any]([row, last_entry])
    for name in _WORDS:
        if value := getattr(usage, name):
            found.append(f"s.{name} = ?")
            values.append(value)
    found.append("s.kind <> ?" if usage.kind is None else "s.kind = ?")
    values.append(int(Kind.SHADOW if usage.kind is None else usage.kind))
    if usage.since is not None:
        found.append("r.start_ns >= ?")
        values.append(hour_of(usage.since) * HOUR_NS)
    if usage.until is not None:
        found.append("r.start_ns < ?")
        values.append(hour_of(usage.until) * HOUR_NS)
    statement = (
        f"SELECT {_FIELDS} FROM usage_rows AS r JOIN usage_subjects AS s ON s.id = r.subject"  # noqa: S608
        f" WHERE {' AND '.join(found)} AND NOT EXISTS (SELECT 1 FROM usage_superseded AS p"
        " WHERE p.row = r.id AND p.entry <= ?) ORDER BY r.id LIMIT ?"
    )
    return _read(connection, run(connection, statement, (*values, last_entry, most)).all())


def of_request(connection: sa.Connection, request_id: bytes) -> RequestRows:
    """All rows of one request: its parts and its shadows."""
    not_lost = "NOT EXISTS (SELECT 1 FROM usage_superseded AS p WHERE p.row = r.id)"
    odd = run(
        connection,
        f"SELECT {_FIELDS} FROM usage_rows AS r"  # noqa: S608 - names of ours
        f" WHERE r.odd = 1 AND r.request_id = ? AND {not_lost}",
        (request_id,),
    ).all()
    # Plain rows are found by their time; without one, slot after slot is asked.
    plain = run(
        connection,
        "WITH RECURSIVE slots(slot) AS (SELECT min(slot) FROM usage_rows WHERE odd = 0 UNION ALL"  # noqa: S608
        " SELECT (SELECT slot FROM usage_rows WHERE odd = 0 AND slot > slots.slot"
        " ORDER BY slot LIMIT 1) FROM slots WHERE slots.slot IS NOT NULL)"
        f" SELECT {_FIELDS} FROM slots CROSS JOIN usage_rows AS r"
        f" ON r.odd = 0 AND r.slot = slots.slot AND r.request_id = ? AND {not_lost}",
        (request_id,),
    ).all()
    return _read(connection, [*odd, *plain])


def _read(connection: sa.Connection, found: Sequence[Sequence[Any]]) -> RequestRows:
    rows = sql_rows.stored([row[:-2] for row in found])
    subjects = sql_subjects.load(connection, sorted(set(rows.subjects)))
    numbers = sorted(subjects)
    telemetry = {
        row[0]: sql_rows.read_telemetry(row, row[0])
        for row in run(
            connection,
            "SELECT row, fingerprint, input_characters, output_characters, scores"
            " FROM usage_telemetry WHERE row AMONG ?",
            (Among(list(rows.ids)),),
        )
    }
    return RequestRows(
        ids=rows.ids,
        request_ids=rows.request_ids,
        rows=rows.rows({number: place for place, number in enumerate(numbers)}),
        subjects=[subjects[number] for number in numbers],
        attempts=[
            max(row[-2], int(own)) for row, own in zip(found, rows.columns["attempt"], strict=True)
        ],
        entries=rows.entries,
        workers=[row[-1] or "" for row in found],
        telemetry=telemetry,
    )
