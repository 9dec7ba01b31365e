"""Windows of the calendar."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.calendar_window import WindowKind, window_end, window_start


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("kind", "moment", "start", "end"),
    [
        pytest.param(
            WindowKind.MINUTE,
            "2026-03-01T00:00:59.999",
            "2026-03-01T00:00:00",
            "2026-03-01T00:01:00",
            id="the end of a minute is not in it",
        ),
        pytest.param(
            WindowKind.DAY,
            "2026-02-28T23:59:59.999",
            "2026-02-28T00:00:00",
            "2026-03-01T00:00:00",
            id="a day ends at midnight in UTC",
        ),
        pytest.param(
            WindowKind.MONTH,
            "2028-02-29T12:00:00",
            "2028-02-01T00:00:00",
            "2028-03-01T00:00:00",
            id="a leap year's February has 29 days",
        ),
        pytest.param(
            WindowKind.MONTH,
            "2026-12-31T23:59:59",
            "2026-12-01T00:00:00",
            "2027-01-01T00:00:00",
            id="December is followed by the next year's January",
        ),
    ],
)
def test_a_window_is_half_open(kind: WindowKind, moment: str, start: str, end: str) -> None:
    """A moment lies in the window that began last; its end belongs to the next."""
    found = window_start(kind, at(moment))
    assert (found, window_end(kind, found)) == (at(start), at(end))
    assert window_start(kind, at(end)) == at(end)


@given(kind=st.sampled_from(WindowKind), moment=st.floats(0, 4_000_000_000))
def test_windows_follow_each_other_without_gaps(kind: WindowKind, moment: float) -> None:
    """Every moment is in exactly one window, and that window's start is its own."""
    start = window_start(kind, moment)
    assert start <= moment < window_end(kind, start)
    assert window_start(kind, start) == start
