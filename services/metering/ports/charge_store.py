"""Where charges come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.metering.domain.focus import Charge
from services.metering.domain.price import PriceBook
from services.metering.domain.report import UsageFilter
from services.metering.domain.usage import Subject


@dataclass(frozen=True, slots=True)
class HourSums:
    """Sums of one subject in one hour."""

    hour: int
    number: int  # of the subject
    subject: Subject
    sums: Sequence[int]


class ChargeStore(Protocol):
    """Reads postings and sums for exports; each call sees one state."""

    async def days(self) -> tuple[int, int] | None:
        """First hours of the first and last day with entries; None: there are none."""
        ...

    async def charges(self, usage: UsageFilter, day: int, book: PriceBook) -> Sequence[Charge]:
        """What the ledger posted to projects on a day, where a price was charged; credits and corrections."""
        ...

    async def hours(
        self, usage: UsageFilter, after: tuple[int, int], until: int, most: int
    ) -> Sequence[HourSums]:
        """Sums by the hour that come after one (hour, subject's number), before an hour; at most so many."""
        ...
