"""Checks that kept sums are the sums of what they sum: balances, roll-ups, spending, positions of outboxes."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from services.metering.adapters import sql_entries
from services.metering.adapters.statements import run
from services.metering.domain.period import Grain
from services.metering.domain.sums import SUMS
from services.metering.domain.unit import Unit
from services.metering.domain.usage import Kind
from services.metering.domain.verification import Verification

_PART = 1_000_000_000
_PLACE = {name: place for place, name in enumerate(SUMS)}
_REQUESTS, _LOST = _PLACE["requests"], _PLACE["lost_attempts"]


def weight(sums: Sequence[int]) -> int:
    """How much a roll-up's hour weighs: by it one that was moved to another hour is found."""
    return sums[_REQUESTS] + sums[_LOST]


def check_sources(
    connection: sa.Connection, found: Verification, sequences: Mapping[int, int]
) -> None:
    """Each outbox is where its entries end."""
    there = {
        row[0]: (row[1], row[2])
        for row in run(connection, "SELECT id, source, next_sequence FROM usage_sources")
    }
    for number in sorted({*there, *sequences}):
        source, following = there.get(number, (f"number {number}", 0))
        if following != sequences.get(number, 0):
            found.add(
                "SOURCE_MISMATCH",
                source,
                f"row {following} is wanted next, but {sequences.get(number, 0)} were counted",
            )


def check_balances(connection: sa.Connection, found: Verification) -> None:
    """Each account's balance is the sum of its postings."""
    kept, summed = sql_entries.balances(connection), sql_entries.summed_balances(connection)
    for account in sorted({*kept, *summed}):
        if kept.get(account) != summed.get(account):
            found.add(
                "BALANCE_MISMATCH",
                account,
                f"kept {kept.get(account, 0)}, its postings sum to {summed.get(account, 0)} (10^-12)",
            )


def check_rollups(
    connection: sa.Connection, found: Verification, totals: Mapping[int, Sequence[int]] | None
) -> None:
    """The sums by the hour, day and month are those of the rows, or of the postings if rows were dropped."""
    by_grain = {grain: _rollup_totals(connection, grain) for grain in Grain}
    if totals is None:
        posted = _posted(connection)
        _compare_posted(found, by_grain[Grain.HOUR], posted)
        totals = by_grain[Grain.HOUR]
    for grain, kept in by_grain.items():
        for subject in sorted({*kept, *totals}):
            nothing = [0] * len(SUMS)
            is_, should = list(kept.get(subject, nothing)), list(totals.get(subject, nothing))
            if is_ != should:
                names = [n for n, a, b in zip(SUMS, is_, should, strict=True) if a != b]
                found.add(
                    "ROLLUP_MISMATCH",
                    f"{grain.name.lower()} sums of subject {subject}",
                    f"not the sums of what was recorded: {', '.join(names)}",
                )
    _check_inside(connection, found)
    _check_families(connection, found)
    _check_spending(connection, found)


def _summed(names: Sequence[str]) -> str:
    # In two parts each, as sums over years may grow beyond 64 bits.
    return ", ".join(f"sum({n} / {_PART}), sum({n} % {_PART})" for n in names)


def _joined(values: Sequence[int]) -> list[int]:
    return [values[at] * _PART + values[at + 1] for at in range(0, len(values), 2)]


def _rollup_totals(connection: sa.Connection, grain: Grain) -> dict[int, list[int]]:
    rows = run(
        connection,
        f"SELECT subject, {_summed(SUMS)} FROM usage_rollups WHERE grain = ? GROUP BY subject",  # noqa: S608
        (int(grain),),
    )
    return {row[0]: _joined(row[1:]) for row in rows}


def _posted(connection: sa.Connection) -> dict[tuple[int, Unit], tuple[int, int]]:
    """Quantity and amount by subject and unit."""
    found = {}
    for row in run(
        connection,
        f"SELECT subject, unit, {_summed(('quantity', 'amount'))} FROM ledger_postings"  # noqa: S608
        " WHERE subject > 0 GROUP BY subject, unit",
    ):
        quantity, amount = _joined(row[2:])
        found[row[0], Unit(row[1])] = quantity, amount
    return found


def _compare_posted(
    found: Verification,
    kept: Mapping[int, Sequence[int]],
    posted: Mapping[tuple[int, Unit], tuple[int, int]],
) -> None:
    for subject in sorted({subject for subject, _ in posted}):
        sums = kept.get(subject, [0] * len(SUMS))
        quantity = {unit: posted.get((subject, unit), (0, 0))[0] for unit in Unit}
        should = {
            "requests": quantity[Unit.REQUEST],
            "input_tokens": quantity[Unit.INPUT_TOKEN] + quantity[Unit.CACHED_TOKEN],
            "cached_tokens": quantity[Unit.CACHED_TOKEN],
            "output_tokens": quantity[Unit.OUTPUT_TOKEN],
            "rows": quantity[Unit.ROW],
            "charged": sum(posted.get((subject, unit), (0, 0))[1] for unit in Unit),
        }
        for name, value in should.items():
            if sums[_PLACE[name]] != value:
                found.add(
                    "ROLLUP_MISMATCH",
                    f"hour sums of subject {subject}",
                    f"{name}: kept {sums[_PLACE[name]]}, posted were {value}",
                )


def check_moments(
    connection: sa.Connection, found: Verification, moments: Mapping[int, int]
) -> None:
    """No sum lies in an hour in which its requests didn't begin."""
    there = {
        row[0]: row[1]
        for row in run(
            connection,
            "SELECT subject, sum(start * (requests + lost_attempts)) FROM usage_rollups"
            " WHERE grain = 1 GROUP BY subject",
        )
    }
    for subject in sorted({*there, *moments}):
        if there.get(subject, 0) != moments.get(subject, 0):
            found.add(
                "ROLLUP_MISMATCH", f"hour sums of subject {subject}", "sums lie in other hours"
            )


def _check_inside(connection: sa.Connection, found: Verification) -> None:
    """Days are the sums of their hours, and months of their days."""
    hours = _by_period(connection, Grain.HOUR, Grain.DAY)
    days = _by_period(connection, Grain.DAY, Grain.DAY)
    if hours != days:
        found.add("ROLLUP_MISMATCH", "day sums", "some are not the sums of their hours")
    months = _by_period(connection, Grain.MONTH, Grain.MONTH)
    if _by_period(connection, Grain.DAY, Grain.MONTH) != months:
        found.add("ROLLUP_MISMATCH", "month sums", "some are not the sums of their days")


def _by_period(
    connection: sa.Connection, grain: Grain, period: Grain
) -> dict[tuple[int, int], tuple[int, int]]:
    """Requests and charged amounts of a grain's sums, by subject and period."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    start = "start - start % 24" if grain is Grain.HOUR else "start"
    for subject, begins, requests, charged in run(
        connection,
        f"SELECT subject, {start}, sum(requests + lost_attempts), sum(charged) FROM usage_rollups"  # noqa: S608
        " WHERE grain = ? GROUP BY 1, 2",
        (int(grain),),
    ):
        key = subject, begins if grain is period else period.start(begins)
        before = found.get(key, (0, 0))
        found[key] = before[0] + requests, before[1] + charged
    return {key: sums for key, sums in found.items() if sums != (0, 0)}


def _check_families(connection: sa.Connection, found: Verification) -> None:
    """Sums of families are those of their subjects."""
    names = ", ".join(f"sum(r.{name})" for name in SUMS)
    summed = (
        f"SELECT r.grain, r.start, f.id, {names} FROM usage_rollups AS r"  # noqa: S608
        " JOIN usage_subjects AS s ON s.id = r.subject"
        " JOIN usage_subjects AS f ON f.project = s.project AND f.key = ''"
        " AND f.endpoint = s.endpoint AND f.model = s.model AND f.version = s.version"
        " AND f.digest = '' AND f.kind = s.kind AND f.pool = s.pool GROUP BY 1, 2, 3"
    )
    kept = f"SELECT grain, start, subject, {', '.join(SUMS)} FROM usage_family_rollups"  # noqa: S608
    for one, other in ((summed, kept), (kept, summed)):
        for row in run(connection, f"{one} EXCEPT {other}"):
            found.add(
                "ROLLUP_MISMATCH",
                f"{Grain(row[0]).name.lower()} sums of family {row[2]}",
                "not the sums of its subjects",
            )


def _check_spending(connection: sa.Connection, found: Verification) -> None:
    kept = {
        (row[0], row[1]): row[2]
        for row in run(connection, "SELECT project, month, amount FROM spending")
        if row[2]
    }
    summed = {
        (row[0], row[1]): row[2]
        for row in run(
            connection,
            "SELECT s.project, r.start, sum(r.charged) FROM usage_rollups AS r"
            " JOIN usage_subjects AS s ON s.id = r.subject WHERE r.grain = 3 GROUP BY 1, 2",
        )
        if row[2]
    }
    for project, month in sorted(
        {key for key in {*kept, *summed} if kept.get(key) != summed.get(key)}
    ):
        found.add(
            "SPENDING_MISMATCH",
            f"projects/{project or '-'}",
            f"of the month that begins at hour {month}",
        )


def check_duplicates(connection: sa.Connection, found: Verification) -> None:
    """No request counts twice."""
    for row in run(
        connection,
        "SELECT r.request_id, r.part, count(*) FROM usage_rows AS r"
        " JOIN usage_subjects AS s ON s.id = r.subject"
        " LEFT JOIN usage_superseded AS p ON p.row = r.id"
        " WHERE r.odd = 1 AND r.attempt > 1 AND p.row IS NULL"
        " GROUP BY r.request_id, r.part, s.kind = ? HAVING count(*) > 1",
        (int(Kind.SHADOW),),
    ):
        found.add("DUPLICATE_REQUEST", row[0].hex(), f"part {row[1]} counts {row[2]} times")
