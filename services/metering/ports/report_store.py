"""Where reports come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.metering.domain.charge import Rows
from services.metering.domain.ledger import Entry
from services.metering.domain.period import Grain
from services.metering.domain.report import Dimension, Span, UsageFilter
from services.metering.domain.usage import Subject, Telemetry


@dataclass(frozen=True, slots=True)
class SubjectSums:
    """Sums of requests that have the same values of some dimensions.

    Of a tag the values are project and key, for who knows their tags.
    """

    values: tuple[str, ...]
    pool: str
    period: int
    sums: Sequence[int]


@dataclass(frozen=True, slots=True)
class RequestRows:
    """Rows of the requests themselves, without attempts that gave way."""

    ids: Sequence[int]
    request_ids: Sequence[bytes]
    rows: Rows
    subjects: Sequence[Subject]  # what `rows.subject` are places in
    attempts: Sequence[int]  # of the whole request
    entries: Sequence[int]
    workers: Sequence[str]
    telemetry: Mapping[int, Telemetry]  # by row id


class ReportStore(Protocol):
    """Reads what is recorded; each call sees one state."""

    async def span(self) -> Span | None:
        """The hours of which there are sums; None: of none."""
        ...

    async def sums(
        self, usage: UsageFilter, span: Span, by: Sequence[Dimension]
    ) -> Sequence[SubjectSums]:
        """Sums of requests that began in a span of hours, by dimensions and pool."""
        ...

    async def computed(self, span: Span, grain: Grain | None) -> Mapping[tuple[str, int], int]:
        """What each pool computed for all requests, in ns, by periods of a grain (None: 0)."""
        ...

    async def request(self, request_id: bytes) -> RequestRows:
        """All rows of one request: its parts and its shadows."""
        ...

    async def last_entry(self) -> int:
        """The newest entry."""
        ...

    async def requests(
        self, usage: UsageFilter, after: int, last_entry: int, most: int
    ) -> RequestRows:
        """Rows with ids after that one as they were at an entry, at most so many."""
        ...

    async def entry_terms(self, numbers: Sequence[int]) -> Mapping[int, Entry]:
        """Entries, for by what their rows were charged."""
        ...
