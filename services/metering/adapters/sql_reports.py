"""The report store in the database: sums from the roll-ups."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from services.metering.adapters import sql_entries, sql_request_rows, sql_rollups
from services.metering.adapters.database import Database
from services.metering.adapters.statements import run
from services.metering.domain.ledger import Entry
from services.metering.domain.period import Grain, spans
from services.metering.domain.report import Dimension, Span, UsageFilter
from services.metering.domain.sums import SUMS
from services.metering.domain.usage import Kind
from services.metering.ports.report_store import RequestRows, SubjectSums

_PART = 10**9
_COLUMNS = {
    Dimension.MODEL: ("s.model",),
    Dimension.VERSION: ("s.model", "s.version"),
    Dimension.PROJECT: ("s.project",),
    Dimension.KEY: ("s.project", "s.key"),
    Dimension.ENDPOINT: ("s.endpoint",),
    Dimension.TAG: ("s.project", "s.key"),
    Dimension.POOL: ("s.pool",),
}
_WORDS = ("project", "key", "endpoint", "model", "version")
# Charged amounts in two parts: their sums over years may grow beyond 64 bits.
_SUMMED = [f"sum(r.{name}) AS {name}" for name in SUMS if name != "charged"] + [
    f"sum(r.charged / {_PART}) AS charged_high",
    f"sum(r.charged % {_PART}) AS charged_low",
]
_ADDED = [f"sum(t.{name})" for name in (*SUMS[:-1], "charged_high", "charged_low")]


class SqlReports:
    """A ReportStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def span(self) -> Span | None:
        return await self._database.read(lambda connection: connection.run_sync(_span))

    async def sums(
        self, usage: UsageFilter, span: Span, by: Sequence[Dimension]
    ) -> Sequence[SubjectSums]:
        rows = await self._database.read(
            lambda connection: connection.run_sync(_sums, usage, span, by)
        )
        return await asyncio.to_thread(_read_all, rows, by)  # of many rows it takes long

    async def computed(self, span: Span, grain: Grain | None) -> Mapping[tuple[str, int], int]:
        return await self._database.read(
            lambda connection: connection.run_sync(_computed, span, grain)
        )

    async def request(self, request_id: bytes) -> RequestRows:
        return await self._database.read(
            lambda connection: connection.run_sync(sql_request_rows.of_request, request_id)
        )

    async def last_entry(self) -> int:
        return await self._database.read(
            lambda connection: connection.run_sync(lambda c: sql_entries.head(c)[0])
        )

    async def requests(
        self, usage: UsageFilter, after: int, last_entry: int, most: int
    ) -> RequestRows:
        return await self._database.read(
            lambda connection: connection.run_sync(
                sql_request_rows.after, usage, after, last_entry, most
            )
        )

    async def entry_terms(self, numbers: Sequence[int]) -> Mapping[int, Entry]:
        def work(connection: sa.Connection) -> dict[int, Entry]:
            return {number: sql_entries.one_entry(connection, number) for number in set(numbers)}

        await self._database.catch_up()  # with the prices that count for them
        return await self._database.read(lambda connection: connection.run_sync(work))


def conditions(usage: UsageFilter) -> tuple[str, tuple[object, ...]]:
    """Which subjects (`s`) a filter takes, as a condition and its values."""
    found, values = [], []
    for name in _WORDS:
        value = getattr(usage, name)
        if value:
            found.append(f"s.{name} = ?")
            values.append(value)
    if usage.kind is None:
        found.append(f"s.kind <> {Kind.SHADOW:d}")
    else:
        found.append(f"s.kind = {usage.kind:d}")
    return " AND ".join(found), tuple(values)


def _span(connection: sa.Connection) -> Span | None:
    first, last = run(
        connection,
        "SELECT (SELECT start FROM usage_rollups WHERE grain = 1 ORDER BY start LIMIT 1),"
        " (SELECT start FROM usage_rollups WHERE grain = 1 ORDER BY start DESC LIMIT 1)",
    ).one()
    return None if first is None else Span(first, last + 1)


def _coarsest(by: Sequence[Dimension]) -> Grain:
    return min((one.grain for one in by if one.grain is not None), default=Grain.MONTH)


def _sums(
    connection: sa.Connection, usage: UsageFilter, span: Span, by: Sequence[Dimension]
) -> list[Sequence[Any]]:
    grain = _grain(by)
    condition, values = conditions(usage)
    names = _names(by)
    start = "r.start" if grain is not None else "0"
    outer = ", ".join([*names, "s.pool", start])
    statement = (
        f"SELECT {outer}, {', '.join(_SUMMED)} FROM {_table(usage, by)} AS r"  # noqa: S608
        " JOIN usage_subjects AS s ON s.id = r.subject"
        f" WHERE r.grain = ? AND r.start >= ? AND r.start < ? AND {condition} GROUP BY {outer}"
    )
    if grain is None:
        # Few groups of many rows: first by subject, as the rows lie.
        inner = ", ".join(name.replace("sum(r.", "sum(") for name in _SUMMED)
        statement = (
            f"SELECT {outer}, {', '.join(_ADDED)} FROM (SELECT subject, {inner}"  # noqa: S608
            f" FROM {_table(usage, by)} WHERE grain = ? AND start >= ? AND start < ?"
            " GROUP BY subject) AS t JOIN usage_subjects AS s ON s.id = t.subject"
            f" WHERE {condition} GROUP BY {', '.join([*names, 's.pool'])}"
        )
    found: list[Sequence[Any]] = []
    for period, first, end in spans(span.since, span.until, _coarsest(by)):
        found += run(connection, statement, (int(period), first, end, *values)).all()
    return found


def _grain(by: Sequence[Dimension]) -> Grain | None:
    return next((one.grain for one in by if one.grain is not None), None)


def _names(by: Sequence[Dimension]) -> list[str]:
    return [name for one in by for name in _COLUMNS.get(one, ())]


def _table(usage: UsageFilter, by: Sequence[Dimension]) -> str:
    """Sums of families suffice unless keys are asked for."""
    keys = usage.key or any(one in {Dimension.KEY, Dimension.TAG} for one in by)
    return "usage_rollups" if keys else sql_rollups.FAMILIES


def _read_all(rows: Sequence[Sequence[Any]], by: Sequence[Dimension]) -> list[SubjectSums]:
    grain, words = _grain(by), len(_names(by))
    return [_read(row, grain, words) for row in rows]


def _read(row: Sequence[Any], grain: Grain | None, words: int) -> SubjectSums:
    pool, at = row[words], row[words + 1]
    period = grain.start(at) if grain is not None else 0
    numbers = row[words + 2 :]
    sums = [*numbers[:-2], numbers[-2] * _PART + numbers[-1]]
    return SubjectSums(tuple(row[:words]), pool, period, sums)


def _computed(
    connection: sa.Connection, span: Span, grain: Grain | None
) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    start = "start" if grain is not None else "0"
    for period, first, end in spans(span.since, span.until, grain or Grain.MONTH):
        for pool, at, computed in run(
            connection,
            f"SELECT s.pool, t.at, sum(t.computed) FROM (SELECT subject, {start} AS at,"  # noqa: S608
            " sum(compute_ns + lost_compute_ns) AS computed FROM usage_family_rollups"
            " WHERE grain = ? AND start >= ? AND start < ? GROUP BY 2, 1) AS t"
            " JOIN usage_subjects AS s ON s.id = t.subject GROUP BY 1, 2",
            (int(period), first, end),
        ):
            key = pool, grain.start(at) if grain is not None else 0
            found[key] = found.get(key, 0) + computed
    return found
