"""Reports of usage: what is asked, and lines of sums with what they were charged and what their machines cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

from services.metering.domain.machine_price import MachinePrice, pool_cost
from services.metering.domain.period import Grain
from services.metering.domain.sums import SUMS
from services.metering.domain.usage import Kind

MOST_LINES = 10_000
MOST_DIMENSIONS = 2
HOUR_NS = 3600 * 10**9

_PLACE = {name: place for place, name in enumerate(SUMS)}
CHARGED, REQUESTS = _PLACE["charged"], _PLACE["requests"]
INPUT, OUTPUT = _PLACE["input_tokens"], _PLACE["output_tokens"]
COMPUTE, LOST_COMPUTE = _PLACE["compute_ns"], _PLACE["lost_compute_ns"]


class Dimension(IntEnum):
    """What a report has one line for."""

    MODEL = 1
    VERSION = 2
    PROJECT = 3
    KEY = 4
    ENDPOINT = 5
    HOUR = 6
    DAY = 7
    MONTH = 8
    TAG = 9
    POOL = 10

    @property
    def grain(self) -> Grain | None:
        """Of times: the period."""
        return _GRAINS.get(self)


_GRAINS = {Dimension.HOUR: Grain.HOUR, Dimension.DAY: Grain.DAY, Dimension.MONTH: Grain.MONTH}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """Which requests; empty and None: all."""

    since: datetime | None = None
    until: datetime | None = None
    project: str = ""
    key: str = ""
    endpoint: str = ""
    model: str = ""
    version: str = ""
    kind: Kind | None = None  # None: all but shadows


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a report is about."""

    filter: UsageFilter
    by: Sequence[Dimension]
    tag_key: str = ""
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Span:
    """Hours since 1970: from `since` to before `until`."""

    since: int
    until: int


@dataclass(slots=True)
class Line:
    """Sums, and what the machines cost that computed them (None: no price of them is known)."""

    values: tuple[str, ...]
    sums: list[int] = field(default_factory=lambda: [0] * len(SUMS))
    machine_cost: int | None = None

    def add(self, sums: Iterable[int], cost: int | None) -> None:
        """Add to it."""
        for place, value in enumerate(sums):
            self.sums[place] += value
        if cost is not None:
            self.machine_cost = (self.machine_cost or 0) + cost

    @property
    def cost_per_1k_tokens(self) -> int | None:
        """What the machines cost for 1000 tokens, input and output together."""
        tokens = self.sums[INPUT] + self.sums[OUTPUT]
        if self.machine_cost is None or tokens <= 0:
            return None
        return self.machine_cost * 1000 // tokens


@dataclass(frozen=True, slots=True)
class Report:
    """A report's lines, cut to what was asked for, and the sums of all of them."""

    lines: Sequence[Line]
    total: Line
    line_count: int
    span: Span


@dataclass(frozen=True, slots=True)
class Cell:
    """Sums of one pool's requests that have the same values."""

    values: tuple[str, ...]
    pool: str
    period: int  # first hour of the time dimension's period; 0: there is none
    sums: Sequence[int]


class MachineCosts:
    """What a pool's machines cost in each period, to be shared out by what was computed there."""

    def __init__(
        self,
        prices: Sequence[MachinePrice],
        span: tuple[int, int],
        grain: Grain | None,
        computed: Mapping[tuple[str, int], int],
    ) -> None:
        """Assign only.

        Args:
            prices: of machines.
            span: nanoseconds since 1970 that the report covers, without what has not passed yet.
            grain: of its time dimension, if it has one.
            computed: by pool and period, by all requests: ns.
        """
        self._prices = prices
        self._span = span
        self._grain = grain
        self._computed = computed
        self._costs: dict[tuple[str, int], int | None] = {}

    def part(self, cell: Cell) -> int | None:
        """The cell's part of what its pool cost; None if no price is known."""
        key = cell.pool, cell.period
        if key not in self._costs:
            since, until = self._span
            if self._grain is not None:
                since = max(since, cell.period * HOUR_NS)
                until = min(until, self._grain.following(cell.period) * HOUR_NS)
            self._costs[key] = pool_cost(self._prices, cell.pool, since, max(since, until))
        cost, whole = self._costs[key], self._computed.get(key, 0)
        if cost is None:
            return None
        own = cell.sums[COMPUTE] + cell.sums[LOST_COMPUTE]
        return cost * own // whole if whole else 0


def report(cells: Iterable[Cell], query: Query, span: Span, costs: MachineCosts | None) -> Report:
    """The cells as lines: those that cost most first, times in order."""
    lines: dict[tuple[str, ...], Line] = {}
    total = Line(())
    for cell in cells:
        cost = costs.part(cell) if costs else None
        line = lines.get(cell.values)
        if line is None:
            line = lines[cell.values] = Line(cell.values)
        line.add(cell.sums, cost)
        total.add(cell.sums, cost)
    ordered = sorted(lines.values(), key=lambda line: _order(line, query.by))
    if not query.by:
        ordered = []
    return Report(ordered[: query.limit], total, len(ordered), span)


def _order(line: Line, by: Sequence[Dimension]) -> tuple[object, ...]:
    times = [value for value, one in zip(line.values, by, strict=True) if one.grain is not None]
    return (*times, -line.sums[CHARGED], -line.sums[REQUESTS], line.values)
