"""The charge store in the database: postings by the day, sums by the hour."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from services.metering.adapters import sql_subjects
from services.metering.adapters.database import Database
from services.metering.adapters.sql_reports import conditions
from services.metering.adapters.statements import run
from services.metering.domain.focus import DAY_US, Charge
from services.metering.domain.ledger import EntryKind
from services.metering.domain.period import Grain
from services.metering.domain.price import Price, PriceBook
from services.metering.domain.report import UsageFilter
from services.metering.domain.sums import SUMS
from services.metering.ports.charge_store import HourSums

_HOUR_US = 3600 * 10**6
_PART = 10**6


class SqlCharges:
    """A ChargeStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def days(self) -> tuple[int, int] | None:
        return await self._database.read(lambda connection: connection.run_sync(_days))

    async def charges(self, usage: UsageFilter, day: int, book: PriceBook) -> Sequence[Charge]:
        return await self._database.read(
            lambda connection: connection.run_sync(_charges, usage, day, book)
        )

    async def hours(
        self, usage: UsageFilter, after: tuple[int, int], until: int, most: int
    ) -> Sequence[HourSums]:
        return await self._database.read(
            lambda connection: connection.run_sync(_hours, usage, after, until, most)
        )


def _days(connection: sa.Connection) -> tuple[int, int] | None:
    first, last = run(connection, "SELECT min(create_us), max(create_us) FROM ledger_entries").one()
    if first is None:
        return None
    return first // DAY_US * 24, last // DAY_US * 24


def _charges(
    connection: sa.Connection, usage: UsageFilter, day: int, book: PriceBook
) -> list[Charge]:
    prices = {price.id: price for price in book.prices}
    found = _usage(connection, usage, day, prices)
    if not any((usage.key, usage.endpoint, usage.model, usage.version)):
        found += _others(connection, usage.project, day)
    return found


def _span(day: int) -> tuple[int, int]:
    return day * _HOUR_US, day * _HOUR_US + DAY_US


def _usage(
    connection: sa.Connection, usage: UsageFilter, day: int, prices: dict[Any, Price]
) -> list[Charge]:
    condition, values = conditions(usage)
    dimensions = "s.project, s.key, s.endpoint, s.model, s.version, p.price"
    rows = run(
        connection,
        f"SELECT {dimensions}, sum(p.quantity), sum(p.amount / {_PART}), sum(p.amount % {_PART})"  # noqa: S608
        " FROM ledger_entries AS e JOIN ledger_postings AS p ON p.entry = e.number"
        " JOIN usage_subjects AS s ON s.id = p.subject"
        " WHERE e.create_us >= ? AND e.create_us < ? AND e.kind = ? AND p.price > 0 AND"
        f" {condition} GROUP BY {dimensions}",
        (*_span(day), int(EntryKind.USAGE), *values),
    )
    return [
        Charge(
            day=day,
            kind=EntryKind.USAGE,
            project=row[0],
            key=row[1],
            endpoint=row[2],
            model=row[3],
            version=row[4],
            price=prices[row[5]],
            quantity=row[6],
            amount=row[7] * _PART + row[8],
        )
        for row in rows
        if row[6] or row[7] or row[8]
    ]


def _others(connection: sa.Connection, project: str, day: int) -> list[Charge]:
    """Credits and corrections: what they say of projects."""
    rows = run(
        connection,
        "SELECT e.number, e.kind, e.reason, a.name, p.amount, e.create_us, c.create_us"
        " FROM ledger_entries AS e JOIN ledger_postings AS p ON p.entry = e.number"
        " JOIN ledger_accounts AS a ON a.id = p.account"
        " LEFT JOIN ledger_entries AS c ON c.number = e.corrects"
        " WHERE e.create_us >= ? AND e.create_us < ? AND e.kind IN (?, ?)"
        " AND substr(a.name, 1, 9) = 'projects/' ORDER BY e.number",
        (*_span(day), int(EntryKind.CREDIT), int(EntryKind.CORRECTION)),
    )
    found = []
    for number, kind, reason, account, amount, made, corrected in rows:
        charged = str(account).split("/")[1]
        if project not in {"", charged}:
            continue
        earlier = corrected is not None and _month(corrected) < _month(made)
        found.append(
            Charge(
                day=day,
                kind=EntryKind(kind),
                project=charged,
                amount=amount,
                entry=number,
                reason=reason,
                corrects_earlier_month=earlier,
            )
        )
    return found


def _month(microseconds: int) -> int:
    return Grain.MONTH.start(microseconds // _HOUR_US)


def _hours(
    connection: sa.Connection, usage: UsageFilter, after: tuple[int, int], until: int, most: int
) -> list[HourSums]:
    condition, values = conditions(usage)
    summed = ", ".join(f"r.{name}" for name in SUMS)
    rows = run(
        connection,
        f"SELECT r.start, r.subject, {summed} FROM usage_rollups AS r"  # noqa: S608
        " JOIN usage_subjects AS s ON s.id = r.subject"
        " WHERE r.grain = 1 AND (r.start, r.subject) > (?, ?) AND r.start < ?"
        f" AND {condition} ORDER BY r.start, r.subject LIMIT ?",
        (*after, until, *values, most),
    ).all()
    subjects = sql_subjects.load(connection, sorted({row[1] for row in rows}))
    return [HourSums(row[0], row[1], subjects[row[1]], row[2:]) for row in rows]
