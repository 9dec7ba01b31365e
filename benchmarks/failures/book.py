"""What callers saw of each failure: a row each, and whether it was what is promised."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.failures.calls import Kind
from benchmarks.failures.traffic import Outcome, Traffic

_P99 = 0.99


class Promise(Enum):
    """What a failure may do to calls."""

    NOTHING = "nothing"  # every call is answered
    BEGUN_STREAMS = "streams that had begun may end"  # all else is answered, on another worker
    IN_FLIGHT = (
        "calls in flight may end"  # connections drop; new calls wait for the next connection
    )
    REFUSED = "refused with the reason, while it lasts"  # work that can't be counted is not begun


_LOST = {"UNAVAILABLE", "INTERNAL", "CANCELLED"}  # a reset in the middle of a stream is INTERNAL
_DROPPED = _LOST | {"RemoteProtocolError", "ReadError", "WriteError", "UNKNOWN"}


@dataclass(slots=True)
class Row:
    """One failure as callers saw it."""

    name: str
    promise: Promise
    begin: float  # monotonic seconds
    end: float = 0.0
    sent: int = 0
    answered: int = 0
    failed: dict[str, int] = field(default_factory=dict)  # by kind and status
    p50: float = 0.0  # seconds
    p99: float = 0.0
    longest: float = 0.0
    gap: float = 0.0  # longest time in which no call of tensors was answered
    broken: list[str] = field(default_factory=list)  # what is not as promised
    notes: list[str] = field(default_factory=list)

    @property
    def availability(self) -> float:
        """Answered calls in a hundred."""
        return 100.0 * self.answered / self.sent if self.sent else 100.0

    def told(self) -> str:
        """One line for who watches."""
        seen = f"{self.sent} sent, {self.answered} answered, failed {self.failed or 'none'}"
        took = f"p99 {1e3 * self.p99:.0f} ms, gap {1e3 * self.gap:.0f} ms"
        return f"{self.name}: {self.end - self.begin:.1f} s; {seen}; {took} {self.broken[:3] or ''}"

    def fill(self, outcomes: Sequence[Outcome]) -> None:
        """Take the figures of the calls that were under way in this time."""
        mine = [o for o in outcomes if o.end >= self.begin and o.begin <= self.end]
        good = [o for o in mine if o.ok]
        bad = [o for o in mine if not o.ok]
        self.sent, self.answered = len(mine), len(good)
        self.failed = dict(Counter(f"{o.kind} {o.how.status}" for o in bad))
        took = sorted(o.end - o.begin for o in mine) or [0.0]
        self.p50, self.p99, self.longest = took[len(took) // 2], _quantile(took, _P99), took[-1]
        ends = sorted(o.end for o in good if o.kind is Kind.TENSOR)
        self.gap = max((b - a for a, b in pairwise(ends)), default=0.0)
        self.broken = [
            f"{o.kind} {o.number}: {o.how}" for o in bad if not _is_allowed(o, self.promise)
        ]


class Book:
    """All rows of a run."""

    def __init__(self, traffic: Traffic) -> None:
        """Assign only."""
        self._traffic = traffic
        self.rows: list[Row] = []

    @contextmanager
    def row(self, name: str, promise: Promise) -> Iterator[Row]:
        """What is done within is one row; its figures are there at the end, also of a failure."""
        row = Row(name, promise, time.monotonic())
        self.rows.append(row)
        try:
            yield row
        finally:
            row.end = time.monotonic()
            row.fill(self._traffic.outcomes)
            print(row.told(), flush=True)

    def total(self) -> Row:
        """Of the whole run: each call once."""
        outcomes = self._traffic.outcomes
        whole = Row("all", Promise.IN_FLIGHT, 0.0, time.monotonic())
        whole.fill(outcomes)
        whole.begin = min((o.begin for o in outcomes), default=whole.end)
        return whole


def _is_allowed(one: Outcome, promise: Promise) -> bool:
    """Whether a call may end so."""
    match promise:
        case Promise.NOTHING:
            return False
        case Promise.BEGUN_STREAMS:
            return one.kind is Kind.STREAM and one.how.begun and one.how.status in _LOST
        case Promise.IN_FLIGHT:
            return one.how.status in _DROPPED
        case Promise.REFUSED:
            return one.how.status in {"UNAVAILABLE", "HTTP 503"}


def _quantile(ordered: Sequence[float], quantile: float) -> float:
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


def show(rows: Sequence[Row], title: str) -> None:
    """Print them as a table."""
    table = Table(title=title, title_justify="left")
    table.add_column("what failed")
    for name in ("s", "sent", "answered", "%", "p50 ms", "p99 ms", "longest ms", "gap ms"):
        table.add_column(name, justify="right")
    table.add_column("failed")
    table.add_column("promise: calls see")
    for row in rows:
        failed = ", ".join(f"{how}: {n}" for how, n in sorted(row.failed.items())) or "none"
        times = (f"{1e3 * t:.0f}" for t in (row.p50, row.p99, row.longest, row.gap))
        figures = (f"{row.end - row.begin:.1f}", str(row.sent), str(row.answered))
        kept = row.promise.value + (f" BROKEN {len(row.broken)}" if row.broken else "")
        table.add_row(row.name, *figures, f"{row.availability:.3f}", *times, failed, kept)
    Console(width=200).print(table)
    for row in rows:
        for note in row.notes:
            print(f"{row.name}: {note}")


def write(rows: Sequence[Row], path: Path, **more: Any) -> None:
    """Keep them as JSON."""
    told = [{**asdict(row), "promise": row.promise.value} for row in rows]
    path.write_text(json.dumps({"rows": told, **more}, indent=1) + "\n")
