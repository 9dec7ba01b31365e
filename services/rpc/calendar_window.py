"""Windows of the calendar in UTC: the minute, day or month that a moment lies in.

Half-open: the end of one is the start of the next.
"""

from datetime import UTC, datetime, timedelta
from enum import Enum

_MONTHS = 12


class WindowKind(Enum):
    """How long a window is; values are those of the protocol."""

    MINUTE = 1
    DAY = 2
    MONTH = 3


_SECONDS = {WindowKind.MINUTE: 60, WindowKind.DAY: 86_400}


def window_start(kind: WindowKind, moment: float) -> int:
    """When the window began that holds the moment; both in seconds since 1970."""
    fixed = _SECONDS.get(kind)
    if fixed is not None:
        return int(moment // fixed) * fixed
    day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=moment)
    return round(datetime(day.year, day.month, 1, tzinfo=UTC).timestamp())


def window_end(kind: WindowKind, start: int) -> int:
    """When the window ends that began at `start`."""
    fixed = _SECONDS.get(kind)
    if fixed is not None:
        return start + fixed
    first = datetime.fromtimestamp(start, UTC)
    years, month = divmod(first.month, _MONTHS)
    return round(datetime(first.year + years, month + 1, 1, tzinfo=UTC).timestamp())
