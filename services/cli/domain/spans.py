"""Spans and moments as people type them: `90d`, `12h`, `2026-11-01`, `7d` ago."""

import re
from datetime import UTC, date, datetime, timedelta

from services.cli.domain.exit_code import UsageError

_SPAN = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>[smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST = timedelta(days=36_600)  # what is longer may leave the calendar
SPAN_RULE = "a number and s, m, h, d or w, such as 12h or 90d"
MOMENT_RULE = (
    "a date, a time as in ISO 8601 (UTC unless it says otherwise), or how long ago: " + SPAN_RULE
)


def parse_span(option: str, text: str) -> timedelta:
    """`90d` as a span of time; `0` too."""
    if text == "0":
        return timedelta()
    span = _span(text)
    if span is None:
        raise UsageError(f"{option} {text!r}: allowed: {SPAN_RULE}")
    return span


def readable_span(whole_seconds: int) -> str:
    """How long that is, in its two largest units: `5h55m`."""
    seconds = max(0, whole_seconds)
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{seconds % 60}s" if minutes else f"{seconds}s"


def parse_moment(option: str, text: str, now: datetime) -> datetime:
    """`2026-11-01`, `2026-11-01T12:00`, or `7d` before `now`; with a zone."""
    span = _span(text)
    if span is not None:
        return now - span
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: allowed: {MOMENT_RULE}") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def begin_of_month(now: datetime) -> datetime:
    """When the month of `now` began, in UTC."""
    today: date = now.astimezone(UTC).date()
    return datetime(today.year, today.month, 1, tzinfo=UTC)


def _span(text: str) -> timedelta | None:
    typed = _SPAN.fullmatch(text)
    if typed is None:
        return None
    number, unit = int(typed["number"]), _UNITS[typed["unit"]]
    if number > _LONGEST / timedelta(**{unit: 1}):
        return None
    return timedelta(**{unit: number})
