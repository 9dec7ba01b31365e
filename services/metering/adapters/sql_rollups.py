"""Sums by the hour, day and month in the database, and what projects spent by the month."""

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from services.metering.adapters.statements import run
from services.metering.domain.period import Grain
from services.metering.domain.sums import SUMS

_SUMMED = ", ".join(SUMS)
_ROLLUPS, FAMILIES = "usage_rollups", "usage_family_rollups"


def _upsert(table: str) -> str:
    sums = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in SUMS)
    return (
        f"INSERT INTO {table} (grain, start, subject, {_SUMMED})"  # noqa: S608 - names of ours
        f" VALUES ({', '.join('?' * (len(SUMS) + 3))})"
        f" ON CONFLICT (grain, start, subject) DO UPDATE SET {sums}"
    )


def add(
    connection: sa.Connection,
    hours: Mapping[tuple[int, int], Sequence[int]],
    families: Mapping[int, int],
) -> None:
    """Add sums of (hour, number of a subject); `families` are the numbers of subjects' families."""
    kept: dict[tuple[str, int, int, int], list[int]] = {}
    for (hour, subject), sums in hours.items():
        for grain in Grain:
            start = grain.start(hour)
            _add(kept, (_ROLLUPS, int(grain), start, subject), sums)
            _add(kept, (FAMILIES, int(grain), start, families[subject]), sums)
    for table in (_ROLLUPS, FAMILIES):
        rows = sorted((*key[1:], *sums) for key, sums in kept.items() if key[0] == table)
        if rows:
            run(connection, _upsert(table), rows)


def _add(
    kept: dict[tuple[str, int, int, int], list[int]],
    key: tuple[str, int, int, int],
    sums: Sequence[int],
) -> None:
    there = kept.get(key)
    if there is None:
        kept[key] = list(sums)
        return
    for place, value in enumerate(sums):
        there[place] += value


def add_spending(connection: sa.Connection, spent: Iterable[tuple[str, int, int]]) -> None:
    """Add to what projects (their ids) spent in months."""
    rows = list(spent)
    if rows:
        run(
            connection,
            "INSERT INTO spending (project, month, amount) VALUES (?, ?, ?)"
            " ON CONFLICT (project, month) DO UPDATE SET amount = spending.amount + excluded.amount",
            rows,
        )
