"""Moments as the ledger stores them: counts since 1970."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_US = 253_402_300_799_999_999  # year 9999


def of_microseconds(count: int) -> datetime:
    """The moment."""
    return _EPOCH + timedelta(microseconds=min(count, _LATEST_US))


def of_nanoseconds(count: int) -> datetime:
    """The moment, to the microsecond."""
    return of_microseconds(count // 1000)
