"""Periods cover exactly what was asked, in as few pieces as there are."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from services.metering.domain.period import Grain, hour_of, moment_of, period_of, spans

HOURS = st.integers(
    hour_of(datetime(2020, 1, 1, tzinfo=UTC)), hour_of(datetime(2030, 1, 1, tzinfo=UTC))
)


@given(HOURS, st.integers(0, 24 * 400), st.sampled_from(Grain))
def test_spans_cover_each_hour_once(since: int, length: int, coarsest: Grain) -> None:
    """No hour is left out or counted twice, and periods are whole ones."""
    at = since
    for grain, first, end in spans(since, since + length, coarsest):
        assert first == at
        assert grain <= coarsest
        assert grain.start(first) == first
        assert grain is Grain.HOUR or grain.start(end) == end
        at = end
    assert at == since + length


def test_a_year_is_twelve_months() -> None:
    """Long reports read few sums."""
    since, until = (hour_of(datetime(year, 1, 1, tzinfo=UTC)) for year in (2026, 2027))
    assert list(spans(since, until, Grain.MONTH)) == [(Grain.MONTH, since, until)]


@given(HOURS)
def test_periods_follow_each_other(hour: int) -> None:
    """Each period ends where the next begins."""
    for grain in Grain:
        start = grain.start(hour)
        following = grain.following(start)
        assert start <= hour < following
        assert grain.start(following) == following


def test_periods_have_names() -> None:
    """As reports write them."""
    hour = hour_of(datetime(2026, 2, 3, 4, 5, tzinfo=UTC))
    assert moment_of(hour) == datetime(2026, 2, 3, 4, tzinfo=UTC)
    assert [period_of(grain, grain.start(hour)) for grain in Grain] == [
        "2026-02-03T04:00:00Z",
        "2026-02-03",
        "2026-02",
    ]
