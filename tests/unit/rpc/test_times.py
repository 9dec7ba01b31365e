"""Times and durations between messages and the domain."""

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from services.rpc.errors import InvalidArgumentError
from services.rpc.times import duration, moment, span, timestamp


def test_moments_come_back() -> None:
    """To the microsecond, in UTC."""
    given = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert moment("f", timestamp(given)) == given


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 0.999999, 3600.0, -1.5])
def test_spans_come_back(seconds: float) -> None:
    """To the microsecond, negative ones too, for the rules to refuse."""
    assert span(duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@pytest.mark.parametrize("seconds", [2**62, -(2**62)])
def test_absurd_spans_stay_absurd(seconds: int) -> None:
    """A span beyond all bounds is no crash, and still beyond all our bounds."""
    assert abs(span(Duration(seconds=seconds))) > timedelta(days=1_000_000)


@pytest.mark.parametrize("seconds", [2**62, -(2**62)])
def test_absurd_moments_are_refused(seconds: int) -> None:
    """A moment beyond the calendar is the caller's mistake, by name."""
    with pytest.raises(InvalidArgumentError, match=r"worker\.start_time: "):
        moment("worker.start_time", Timestamp(seconds=seconds))
