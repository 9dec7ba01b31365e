"""What rows of requests add up to: lines of the ledger by subject, unit and price, and sums by the hour."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from services.metering.domain.price import NO_PRICE, PriceBook, PriceId
from services.metering.domain.sums import SUMS
from services.metering.domain.unit import Unit
from services.metering.domain.usage import Column, Kind, Outcome, Subject

HOUR_NS = 3600 * 10**9

# Sums of a group of rows, in this order; the first ones are `sums.SUMS` of the same name.
_SUMMED = (
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "rows",
    "request_bytes",
    "response_bytes",
    "from_cache",
    "preemptions",
    "compute_ns",
    "queue_ns",
    "duration_ns",
    "compute_us",
)
_SAFE = 2**62
_PLACE = {name: place for place, name in enumerate(SUMS)}
_OUTCOME_PLACE = {outcome: _PLACE[outcome.name.lower()] for outcome in Outcome}
_FIRST_SUMMED = _PLACE[_SUMMED[0]]
_COPIED = len(_SUMMED) - 1  # without compute_us
_CHARGED = _PLACE["charged"]
_LOST_ATTEMPTS, _LOST_COMPUTE = _PLACE["lost_attempts"], _PLACE["lost_compute_ns"]
_COMPUTE_NS = _SUMMED.index("compute_ns")
_UNITS = tuple(Unit)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as columns; `subject` is the place in a list of subjects."""

    subject: Column
    columns: Mapping[str, Column]

    def taken(self, places: Column) -> "Rows":
        """Some of them."""
        return Rows(
            self.subject[places], {name: column[places] for name, column in self.columns.items()}
        )


class Group(NamedTuple):
    """Rows that are charged alike and counted in the same hour."""

    subject: int
    outcome: Outcome
    hour: int  # since 1970
    segment: int  # how many of the price book's boundaries had passed when they began
    size: int
    sums: Sequence[int]  # as _SUMMED


class Line(NamedTuple):
    """What is added to the ledger by."""

    subject: int
    unit: Unit
    price: PriceId


@dataclass(slots=True)
class Tally:
    """What rows add to the ledger, and to the sums by the hour."""

    lines: dict[Line, tuple[int, int]] = field(default_factory=dict)  # quantity, amount
    hours: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # (hour, subject) -> SUMS

    def add_line(self, line: Line, quantity: int, amount: int) -> None:
        """Add to one line."""
        before = self.lines.get(line, (0, 0))
        self.lines[line] = before[0] + quantity, before[1] + amount

    def hour(self, hour: int, subject: int) -> list[int]:
        """Sums of a subject in an hour, to add to."""
        sums = self.hours.get((hour, subject))
        if sums is None:
            sums = self.hours[hour, subject] = [0] * len(SUMS)
        return sums


@dataclass(frozen=True, slots=True)
class Tariff:
    """By what rows are charged."""

    book: PriceBook
    charged: Collection[Outcome]  # others cost nothing


def groups(rows: Rows, boundaries_ns: Sequence[int]) -> Iterator[Group]:
    """The rows in groups, each with its sums."""
    if not len(rows.subject):
        return
    columns = rows.columns
    start = columns["start_ns"]
    hour = start // HOUR_NS
    first_hour = int(hour.min())
    segment = np.searchsorted(np.array(boundaries_ns, dtype=np.int64), start, side="right")
    segments = len(boundaries_ns) + 1
    subjects = int(rows.subject.max()) + 1
    key = ((hour - first_hour) * subjects + rows.subject) * 8 + columns["outcome"]
    key = key * segments + segment
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(np.append(begins, len(ordered)))
    sums = [_added(_column(columns, name)[order], begins) for name in _SUMMED]
    for one, count, *values in zip(
        ordered[begins].tolist(),
        counts.tolist(),
        *(column.tolist() for column in sums),
        strict=True,
    ):
        rest, at = divmod(one, segments)
        rest, outcome = divmod(rest, 8)
        hours, subject = divmod(rest, subjects)
        yield Group(subject, Outcome(outcome), hours + first_hour, at, count, values)


def _column(columns: Mapping[str, Column], name: str) -> Column:
    # Each request is charged for whole microseconds, so that sums of charges are the charge of sums.
    return (columns["compute_ns"] + 500) // 1000 if name == "compute_us" else columns[name]


def _added(column: Column, begins: Column) -> Column:
    if int(column.max()) * len(column) < _SAFE:
        return np.add.reduceat(column, begins)
    return np.add.reduceat(column.astype(object), begins)


def count(
    tally: Tally, rows: Rows, subjects: Sequence[Subject], tariff: Tariff, sign: int = 1
) -> None:
    """Add requests to the tally, or with a sign of -1 take them out again."""
    for group in groups(rows, tariff.book.boundaries_ns):
        subject = subjects[group.subject]
        sums = tally.hour(group.hour, group.subject)
        sums[0] += sign * group.size
        sums[_OUTCOME_PLACE[group.outcome]] += sign * group.size
        for place in range(_COPIED):
            sums[_FIRST_SUMMED + place] += sign * group.sums[place]
        if subject.kind is not Kind.SHADOW:
            sums[_CHARGED] += _charge(tally, group, subject, tariff, sign)


def _charge(tally: Tally, group: Group, subject: Subject, tariff: Tariff, sign: int) -> int:
    """Put the group's quantities into the ledger's lines; what they cost."""
    charged = group.outcome in tariff.charged
    scope = (subject.project, subject.model, subject.version)
    total = 0
    for unit, quantity in zip(_UNITS, _quantities(group), strict=True):
        if not quantity:
            continue
        price = tariff.book.find_in(scope, unit, group.segment) if charged else None
        amount = sign * quantity * price.count_amount if price else 0
        tally.add_line(
            Line(group.subject, unit, price.id if price else NO_PRICE), sign * quantity, amount
        )
        total += amount
    return total


def _quantities(group: Group) -> tuple[int, ...]:
    """In the order of Unit."""
    inputs, cached, outputs, rows = group.sums[:4]
    return group.size, inputs - cached, cached, outputs, group.sums[-1], rows


def charge_of(numbers: Mapping[str, int], subject: Subject, tariff: Tariff) -> int:
    """What one request costs, in 10^-12 of the currency."""
    if subject.kind is Kind.SHADOW or numbers["outcome"] not in tariff.charged:
        return 0
    segment = bisect_right(tariff.book.boundaries_ns, numbers["start_ns"])
    scope = (subject.project, subject.model, subject.version)
    cached = numbers["cached_tokens"]
    quantities = (
        *(1, numbers["input_tokens"] - cached, cached, numbers["output_tokens"]),
        *((numbers["compute_ns"] + 500) // 1000, numbers["rows"]),
    )
    total = 0
    for unit, quantity in zip(_UNITS, quantities, strict=True):
        price = tariff.book.find_in(scope, unit, segment) if quantity else None
        total += quantity * price.count_amount if price else 0
    return total


def count_lost(tally: Tally, rows: Rows, sign: int = 1) -> None:
    """Add attempts that were not their request's answer: they cost nothing, but they computed."""
    for group in groups(rows, ()):
        sums = tally.hour(group.hour, group.subject)
        sums[_LOST_ATTEMPTS] += sign * group.size
        sums[_LOST_COMPUTE] += sign * group.sums[_COMPUTE_NS]
