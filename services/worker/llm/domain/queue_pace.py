"""How fast a queue moves: how long one more would wait."""

_MEMORY = 0.1  # weight of the newest interval


class QueuePace:
    """Intervals between requests that begin while others wait. `now` is of the monotonic clock."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._interval: float | None = None
        # When the last one began, or when there was something to begin again.
        self._since: float | None = None

    def note(self, began: int, waiting: int, now: float) -> None:
        """So many have begun since the last note, so many still wait."""
        if began and self._since is not None:
            newest = (now - self._since) / began
            known = newest if self._interval is None else self._interval
            self._interval = known + _MEMORY * (newest - known)
        if not waiting:
            self._since = None
        elif began or self._since is None:
            self._since = now

    def seconds_for(self, waiting: int) -> float:
        """Until so many have begun; 0 as long as nothing is known."""
        return waiting * (self._interval or 0.0)
