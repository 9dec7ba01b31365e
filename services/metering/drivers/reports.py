"""Reports of usage: asks the sums, names what they are of, and shares out what the machines cost."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from services.metering.domain.charge import Tally, Tariff, count
from services.metering.domain.ledger import outcomes_of
from services.metering.domain.period import Grain, hour_of, moment_of, period_of
from services.metering.domain.report import (
    HOUR_NS,
    MOST_DIMENSIONS,
    MOST_LINES,
    Cell,
    Dimension,
    MachineCosts,
    Query,
    Report,
    Span,
    UsageFilter,
    report,
)
from services.metering.domain.usage import Kind, Outcome, Subject
from services.metering.drivers.price_list import PriceList
from services.metering.drivers.tags import TagReads
from services.metering.ports.identity_store import Owner, Tags
from services.metering.ports.report_store import ReportStore, RequestRows, SubjectSums
from services.rpc.clock import Clock
from services.rpc.errors import NotFoundError
from services.rpc.violations import Violations

_DEFAULT_LINES = 1000
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class RequestReport:
    """One request, what it adds up to, and where that is posted."""

    request_id: bytes
    part: int
    subject: Subject
    outcome: Outcome
    attempts: int
    start_ns: int
    sums: Sequence[int]
    entry: int
    worker: str


def check_query(query: Query) -> Query:
    """The query with its defaults; InvalidArgumentError names all that is wrong."""
    violations = Violations()
    violations.require(
        len(query.by) <= MOST_DIMENSIONS and len(set(query.by)) == len(query.by),
        "by",
        f"{len(query.by)} dimensions; allowed: at most {MOST_DIMENSIONS}, each once",
    )
    violations.require(
        sum(one.grain is not None for one in query.by) <= 1,
        "by",
        "allowed: one of hour, day, month",
    )
    tagged = Dimension.TAG in query.by
    violations.require(
        tagged == bool(query.tag_key), "tag_key", "allowed: with dimension TAG, and only then"
    )
    violations.require(
        0 <= query.limit <= MOST_LINES, "limit", f"{query.limit}; allowed: 0 to {MOST_LINES}"
    )
    since, until = query.filter.since, query.filter.until
    violations.require(
        since is None or until is None or since < until, "filter.until", "allowed: after `since`"
    )
    violations.raise_if_any()
    return replace(query, limit=query.limit or _DEFAULT_LINES, filter=whole_hours(query.filter))


def whole_hours(usage: UsageFilter) -> UsageFilter:
    """`since` rounded down, `until` rounded up."""
    since, until = usage.since, usage.until
    if since is not None:
        since = moment_of(hour_of(since))
    if until is not None:
        until = moment_of(hour_of(until + _HOUR - timedelta(microseconds=1)))
    return replace(usage, since=since, until=until)


class Reports:
    """Used on the event loop."""

    def __init__(self, store: ReportStore, prices: PriceList, tags: TagReads, clock: Clock) -> None:
        self._store = store
        self._prices = prices
        self._tags = tags
        self._clock = clock

    async def query(self, query: Query) -> Report:
        """A report of sums."""
        query = check_query(query)
        span = await self._span(query.filter)
        found = await self._store.sums(query.filter, span, query.by)
        costs = await self._machine_costs(query, span)
        tags = await self._tags_of(found, query)
        # Of many keys it takes seconds, in which others want the loop.
        return await asyncio.to_thread(
            lambda: report(_cells(found, query, tags), query, span, costs)
        )

    async def _tags_of(self, found: Sequence[SubjectSums], query: Query) -> Mapping[Owner, Tags]:
        if Dimension.TAG not in query.by:
            return {}
        first = sum(map(_words, query.by[: query.by.index(Dimension.TAG)]))
        return await self._tags.of({(s.values[first], s.values[first + 1]) for s in found})

    async def _span(self, usage: UsageFilter) -> Span:
        known = await self._store.span()
        hour = hour_of(self._clock.now())
        # Where no bound was given, whole months have nothing more in them, and are fewer sums.
        first, last = (known.since, known.until) if known else (hour, hour + 1)
        month = Grain.MONTH
        since = hour_of(usage.since) if usage.since else month.start(min(first, hour))
        until = (
            hour_of(usage.until)
            if usage.until
            else month.following(month.start(max(last - 1, hour)))
        )
        return Span(since, max(since, until))

    async def _machine_costs(self, query: Query, span: Span) -> MachineCosts | None:
        prices = self._prices.machine_prices
        if not prices:
            return None
        grain = next((one.grain for one in query.by if one.grain is not None), None)
        computed = await self._store.computed(span, grain)
        now_ns = int(self._clock.now().timestamp()) * 10**9
        return MachineCosts(
            prices, (span.since * HOUR_NS, min(span.until * HOUR_NS, now_ns)), grain, computed
        )

    async def request(self, request_id: bytes) -> list[RequestReport]:
        """One request: its parts, then its shadows; NotFoundError if nothing is known of it."""
        found = await self._store.request(request_id)
        if not found.ids:
            raise NotFoundError(
                f"nothing is recorded of request {request_id.hex()}, or not any more",
                metadata={"request_id": request_id.hex()},
            )
        entries = await self._store.entry_terms(found.entries)
        reports = []
        for place in range(len(found.ids)):
            terms = entries[found.entries[place]]
            tariff = Tariff(self._prices.book.as_of(terms.last_price), outcomes_of(terms.charged))
            reports.append(_request_report(found, place, tariff))
        return sorted(reports, key=lambda one: (one.subject.kind is Kind.SHADOW, one.part))


def _words(one: Dimension) -> int:
    """How many of a line's values are told of it."""
    if one.grain is not None:
        return 0
    return 2 if one in {Dimension.VERSION, Dimension.KEY, Dimension.TAG} else 1


def _cells(
    found: Sequence[SubjectSums], query: Query, tags: Mapping[Owner, Tags]
) -> Iterator[Cell]:
    return (Cell(_values(sums, query, tags), sums.pool, sums.period, sums.sums) for sums in found)


def _values(sums: SubjectSums, query: Query, tags: Mapping[Owner, Tags]) -> tuple[str, ...]:
    told = list(sums.values)
    values = []
    for one in query.by:
        if one.grain is not None:
            values.append(period_of(one.grain, sums.period))
        elif one is Dimension.TAG:
            project, key = told.pop(0), told.pop(0)
            values.append(tags[project, key].get(query.tag_key, ""))
        elif one is Dimension.VERSION:
            model, version = told.pop(0), told.pop(0)
            values.append(f"models/{model}/versions/{version}" if model else "")
        elif one is Dimension.KEY:
            project, key = told.pop(0), told.pop(0)
            values.append(f"projects/{project}/keys/{key}" if key else "")
        else:
            values.append(told.pop(0))
    return tuple(values)


def _request_report(found: RequestRows, place: int, tariff: Tariff) -> RequestReport:
    rows = found.rows.taken(np.array([place]))
    tally = Tally()
    count(tally, rows, found.subjects, tariff)
    (sums,) = tally.hours.values()
    subject = found.subjects[int(rows.subject[0])]
    return RequestReport(
        request_id=found.request_ids[place],
        part=int(rows.columns["part"][0]),
        subject=subject,
        outcome=Outcome(int(rows.columns["outcome"][0])),
        attempts=found.attempts[place],
        start_ns=int(rows.columns["start_ns"][0]),
        sums=sums,
        entry=0 if subject.kind is Kind.SHADOW else found.entries[place],
        worker=found.workers[place],
    )
