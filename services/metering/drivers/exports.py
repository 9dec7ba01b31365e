"""Exports: tables of requests, hours and charges, made page by page so that any size fits in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from services.metering.domain import focus
from services.metering.domain.charge import Tariff, charge_of
from services.metering.domain.export import Content, Format, Holds, TableColumn, columns
from services.metering.domain.ledger import Entry, outcomes_of, scores_text
from services.metering.domain.period import Grain, hour_of
from services.metering.domain.report import UsageFilter
from services.metering.domain.sums import SUMS
from services.metering.domain.usage import COLUMNS, Kind, Outcome, Subject
from services.metering.drivers.price_list import PriceList
from services.metering.drivers.reports import whole_hours
from services.metering.drivers.tags import TagReads
from services.metering.ports.charge_store import ChargeStore
from services.metering.ports.report_store import ReportStore, RequestRows
from services.metering.ports.table_writer import MakeTable

_PAGE = 5000  # lines
_HOUR_US = 3600 * 10**6
_FAR = 10**7  # an hour that nobody lives to see

_SUBJECT = ("project", "key", "endpoint", "model", "version", "digest", "kind", "pool")
_NUMBERS = tuple(name for name in COLUMNS if name not in {"part", "attempt", "outcome", "start_ns"})
_REQUEST_COLUMNS: tuple[TableColumn, ...] = (
    *columns(Holds.TEXT, "request_id"),
    *columns(Holds.INTEGER, "part"),
    *columns(Holds.TEXT, *_SUBJECT, "worker", "outcome"),
    *columns(Holds.INTEGER, "attempts"),
    *columns(Holds.TIME, "start_time"),
    *columns(Holds.INTEGER, *_NUMBERS),
    *columns(Holds.DECIMAL, "charged"),
    *columns(Holds.INTEGER, "ledger_entry"),
    *columns(Holds.TEXT, "prompt_fingerprint"),
    *columns(Holds.INTEGER, "input_characters", "output_characters"),
    *columns(Holds.TEXT, "scores"),
)
_HOUR_COLUMNS: tuple[TableColumn, ...] = (
    *columns(Holds.TIME, "hour"),
    *columns(Holds.TEXT, *_SUBJECT),
    *columns(Holds.INTEGER, *SUMS[:-1]),
    *columns(Holds.DECIMAL, SUMS[-1]),
)
_COLUMNS = {
    Content.REQUESTS: _REQUEST_COLUMNS,
    Content.HOURS: _HOUR_COLUMNS,
    Content.FOCUS: focus.COLUMNS,
}
_Page = Sequence[Sequence[object]]


def _words(subject: Subject) -> tuple[str, ...]:
    return (
        subject.project,
        subject.key,
        subject.endpoint,
        subject.model,
        subject.version,
        subject.digest,
        subject.kind.name.lower(),
        subject.pool,
    )


class Exports:
    """Used on the event loop."""

    def __init__(
        self,
        stores: tuple[ReportStore, ChargeStore],
        prices: PriceList,
        tags: TagReads,
        account: focus.Account,
        table: MakeTable,
    ) -> None:
        self._reports, self._charges = stores
        self._prices = prices
        self._tags = tags
        self._account = account
        self._table = table

    async def export(
        self, content: Content, kind: Format, usage: UsageFilter
    ) -> AsyncIterator[bytes]:
        """A file's pieces."""
        usage = whole_hours(usage)
        table = await asyncio.to_thread(self._table, _COLUMNS[content], kind)
        pages = {
            Content.REQUESTS: self._requests,
            Content.HOURS: self._hours,
            Content.FOCUS: self._focus,
        }[content](usage)
        async for page in pages:
            # Pages take tens of milliseconds, in which others want the loop.
            if piece := await asyncio.to_thread(table.write, page):
                yield piece
        if piece := await asyncio.to_thread(table.end):
            yield piece

    async def _requests(self, usage: UsageFilter) -> AsyncIterator[_Page]:
        last = await self._reports.last_entry()
        after = 0
        while True:
            found = await self._reports.requests(usage, after, last, _PAGE)
            if not found.ids:
                return
            terms = await self._reports.entry_terms(found.entries)
            tariffs = {number: self._tariff(entry) for number, entry in terms.items()}
            yield await asyncio.to_thread(_lines, found, tariffs)
            after = found.ids[-1]

    def _tariff(self, entry: Entry) -> Tariff:
        return Tariff(self._prices.book.as_of(entry.last_price), outcomes_of(entry.charged))

    async def _hours(self, usage: UsageFilter) -> AsyncIterator[_Page]:
        since = hour_of(usage.since) if usage.since else 0
        until = hour_of(usage.until) if usage.until else _FAR
        after = (since, 0)
        while found := await self._charges.hours(usage, after, until, _PAGE):
            yield [(sums.hour * _HOUR_US, *_words(sums.subject), *sums.sums) for sums in found]
            after = found[-1].hour, found[-1].number

    async def _focus(self, usage: UsageFilter) -> AsyncIterator[_Page]:
        days = await self._charges.days()
        if days is None:
            return
        first, last = days
        if usage.since is not None:
            first = max(first, Grain.DAY.start(hour_of(usage.since)))
        if usage.until is not None:
            last = min(last, Grain.DAY.start(hour_of(usage.until) - 1))
        for day in range(first, last + 1, 24):
            charges = await self._charges.charges(usage, day, self._prices.book)
            for start in range(0, len(charges), _PAGE):
                page = charges[start : start + _PAGE]
                tags = await self._tags.of({(charge.project, charge.key) for charge in page})
                yield [
                    focus.line(charge, self._account, tags[charge.project, charge.key])
                    for charge in page
                ]


def _lines(found: RequestRows, tariffs: dict[int, Tariff]) -> _Page:
    return [_request(found, place, tariffs) for place in range(len(found.ids))]


def _request(found: RequestRows, place: int, tariffs: dict[int, Tariff]) -> tuple[object, ...]:
    numbers = {name: int(column[place]) for name, column in found.rows.columns.items()}
    subject = found.subjects[int(found.rows.subject[place])]
    told = found.telemetry.get(found.ids[place])
    entry = found.entries[place]
    texts: tuple[object, ...] = (None, None, None, None)
    if told is not None:
        texts = (
            told.fingerprint.hex() or None,
            told.input_characters,
            told.output_characters,
            scores_text(told.scores) if told.scores else None,
        )
    return (
        found.request_ids[place].hex(),
        numbers["part"],
        *_words(subject),
        found.workers[place],
        Outcome(numbers["outcome"]).name.lower(),
        found.attempts[place],
        numbers["start_ns"] // 1000,
        *(numbers[name] for name in _NUMBERS),
        charge_of(numbers, subject, tariffs[entry]),
        None if subject.kind is Kind.SHADOW else entry,
        *texts,
    )
