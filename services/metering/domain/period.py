"""Hours, days and months in UTC, as hours since 1970."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)


class Grain(IntEnum):
    """What sums are kept by; its value is stored."""

    HOUR = 1
    DAY = 2
    MONTH = 3

    def start(self, hour: int) -> int:
        """First hour of the period that has this hour."""
        if self is Grain.HOUR:
            return hour
        return hour - hour % 24 if self is Grain.DAY else month_start(hour)

    def following(self, start: int) -> int:
        """First hour of the next period."""
        if self is Grain.HOUR:
            return start + 1
        return start + 24 if self is Grain.DAY else month_start(start + 31 * 24 + 23)


@lru_cache(maxsize=4096)
def month_start(hour: int) -> int:
    """First hour of the month that has this hour."""
    return hour_of(moment_of(hour).replace(day=1, hour=0))


def hour_of(moment: datetime) -> int:
    """The hour that has this moment."""
    return (moment - _EPOCH) // _HOUR


def moment_of(hour: int) -> datetime:
    """When an hour begins."""
    return _EPOCH + hour * _HOUR


_FORMATS = {Grain.HOUR: "%Y-%m-%dT%H:00:00Z", Grain.DAY: "%Y-%m-%d", Grain.MONTH: "%Y-%m"}


def period_of(grain: Grain, hour: int) -> str:
    """How reports name the period that begins with an hour."""
    return moment_of(hour).strftime(_FORMATS[grain])


def spans(since: int, until: int, coarsest: Grain) -> Iterator[tuple[Grain, int, int]]:
    """The hours from `since` to `until` in as few periods as there are: (grain, first hour, hour after the last).

    Args:
        since: first hour.
        until: hour after the last.
        coarsest: a report by the hour can't use days.
    """
    at = since
    while at < until:
        grain = _grain_at(at, until, coarsest)
        end = grain.following(at)
        while end < until and _grain_at(end, until, coarsest) is grain:
            end = grain.following(end)
        yield grain, at, end
        at = end


def _grain_at(hour: int, until: int, coarsest: Grain) -> Grain:
    """The coarsest period that begins with this hour and has ended by `until`."""
    return next(
        grain
        for grain in reversed(Grain)
        if grain is Grain.HOUR
        or (grain <= coarsest and grain.start(hour) == hour and grain.following(hour) <= until)
    )
