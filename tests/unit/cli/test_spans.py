"""Spans and moments as they are typed."""

from datetime import UTC, datetime, timedelta

import pytest

from services.cli.domain.exit_code import UsageError
from services.cli.domain.spans import (
    begin_of_month,
    parse_moment,
    parse_span,
    readable_span,
)

_NOW = datetime(2026, 11, 30, 16, 35, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("0", timedelta()),
        ("45s", timedelta(seconds=45)),
        ("30m", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        ("90d", timedelta(days=90)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_spans(text: str, span: timedelta) -> None:
    """A number and a unit."""
    assert parse_span("--lifetime", text) == span


@pytest.mark.parametrize("text", ["", "d", "5", "-5d", "1.5h", "5 d", "5y", "999999999w", "٣d"])
def test_what_is_no_span(text: str) -> None:
    """Is refused with the option, what was given, and what is allowed."""
    with pytest.raises(UsageError, match=r"--lifetime .*allowed: a number and s, m, h, d or w"):
        parse_span("--lifetime", text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T12:30", datetime(2026, 11, 1, 12, 30, tzinfo=UTC)),
        ("2026-11-01T12:30:00+02:00", datetime(2026, 11, 1, 10, 30, tzinfo=UTC)),
        ("2026-11-01T12:30:00Z", datetime(2026, 11, 1, 12, 30, tzinfo=UTC)),
        ("7d", datetime(2026, 11, 23, 16, 35, tzinfo=UTC)),
    ],
)
def test_moments(text: str, moment: datetime) -> None:
    """A date or time, in UTC unless it says otherwise, or how long ago."""
    assert parse_moment("--since", text, _NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "30.11.2026"])
def test_what_is_no_moment(text: str) -> None:
    """Is refused with what is allowed."""
    with pytest.raises(UsageError, match=r"--since .*allowed: a date"):
        parse_moment("--since", text, _NOW)


def test_months_begin_in_utc() -> None:
    """Whatever zone the moment is told in."""
    east = timedelta(hours=14)
    there = datetime(2026, 12, 1, 3, tzinfo=UTC).astimezone()
    assert begin_of_month(there) == datetime(2026, 12, 1, tzinfo=UTC)
    assert begin_of_month(_NOW + east) == datetime(2026, 12, 1, tzinfo=UTC)
    assert begin_of_month(_NOW) == datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0s"), (59, "59s"), (61, "1m1s"), (21_326, "5h55m"), (90_061, "1d1h")],
)
def test_how_long_it_is(seconds: int, shown: str) -> None:
    """In the two largest units, and never less than nothing."""
    assert readable_span(seconds) == shown
