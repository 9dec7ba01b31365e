"""Whether a runner that answers does so with anything but errors."""

_MANY = 3  # failed steps in a row
# Who is avoided gets no requests, and could not show that it works again: after so long it gets another chance.
_FORGIVEN_SECONDS = 30.0


class RunnerHealth:
    """Failed steps in a row. `now` is of the monotonic clock."""

    def __init__(self) -> None:
        """Nothing has failed."""
        self._failures = 0
        self._first = self._last = 0.0

    def note(self, *, failed: bool, now: float) -> None:
        """A step ended."""
        if not failed:
            self._failures = 0
            return
        if not self._failures:
            self._first = now
        self._failures += 1
        self._last = now

    def failing_for(self, now: float) -> float | None:
        """Seconds since the first of many failures in a row; None: there are few, or they are long ago."""
        if self._failures < _MANY or now - self._last > _FORGIVEN_SECONDS:
            return None
        return now - self._first
