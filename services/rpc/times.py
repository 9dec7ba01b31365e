"""Times and durations between messages and the domain."""

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from services.rpc.errors import InvalidArgumentError

_LONGEST_SECONDS = 315_576_000_000  # duration.proto: ten thousand years
_DAY = timedelta(days=1).total_seconds()


def timestamp(moment: datetime) -> Timestamp:
    """The moment as a message."""
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def moment(field: str, message: Timestamp) -> datetime:
    """The message's moment in UTC."""
    try:
        return message.ToDatetime(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError.of_field(
            field, f"{message.seconds} s is not a time; allowed: years 1 to 9999"
        ) from error


def duration(span: timedelta) -> Duration:
    """The span as a message."""
    message = Duration()
    message.FromTimedelta(span)
    return message


def span(message: Duration) -> timedelta:
    """The message's span; absurd ones come out as absurd ones, for the rules to refuse."""
    seconds = max(-_LONGEST_SECONDS, min(_LONGEST_SECONDS, message.seconds))
    days, rest = divmod(seconds, int(_DAY))
    return timedelta(days=days, seconds=rest, microseconds=message.nanos / 1000)
