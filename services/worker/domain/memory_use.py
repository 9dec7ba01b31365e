"""When memory that nothing uses any more is worth giving back."""

_GROWTH = 1.05  # of what was left after the last time
_LEAST = 4 * 1024**2  # bytes; less is not worth the page faults of the next run


class MemoryUse:
    """What the process occupied after it last gave memory back, and what changed since."""

    def __init__(self, interval: float) -> None:
        """Between two releases while the same models are loaded at least `interval` seconds pass."""
        self._interval = interval
        self._floor = 0
        self._turnover = 0
        self._released = 0.0

    def is_due(self, now: float, resident: int, turnover: int) -> bool:
        """Whether to release: a model came or went, or the process has grown."""
        if turnover != self._turnover:
            return True
        grown = resident > max(self._floor * _GROWTH, self._floor + _LEAST)
        return grown and now - self._released >= self._interval

    def released(self, now: float, resident: int, turnover: int) -> None:
        """It was done: `resident` bytes are left; `turnover` is what it was before that."""
        self._floor, self._turnover, self._released = resident, turnover, now
