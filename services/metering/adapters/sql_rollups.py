"""Sums by the hour, day and month in the database, and what projects spent by the month."""

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from services.metering.domain.period import Grain
from services.metering.domain.sums import SUMS

_SUMMED = ", ".join(SUMS)
_UPSERT = (
    f"INSERT INTO usage_rollups (grain, start, subject, {_SUMMED})"  # noqa: S608 - names of ours
    f" VALUES ({', '.join('?' * (len(SUMS) + 3))})"
    " ON CONFLICT (grain, start, subject) DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in SUMS)
)


def add(connection: sa.Connection, hours: Mapping[tuple[int, int], Sequence[int]]) -> None:
    """Add sums of (hour, number of a subject)."""
    coarse: dict[tuple[int, int, int], list[int]] = {}
    for (hour, subject), sums in hours.items():
        for grain in Grain:
            key = (int(grain), grain.start(hour), subject)
            kept = coarse.get(key)
            if kept is None:
                coarse[key] = list(sums)
            else:
                for place, value in enumerate(sums):
                    kept[place] += value
    if coarse:
        connection.exec_driver_sql(_UPSERT, sorted((*key, *sums) for key, sums in coarse.items()))


def add_spending(connection: sa.Connection, spent: Iterable[tuple[str, int, int]]) -> None:
    """Add to what projects (their ids) spent in months."""
    rows = list(spent)
    if rows:
        connection.exec_driver_sql(
            "INSERT INTO spending (project, month, amount) VALUES (?, ?, ?)"
            " ON CONFLICT (project, month) DO UPDATE SET amount = amount + excluded.amount",
            rows,
        )
