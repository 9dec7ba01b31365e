"""Whether a version's runs come to an end: one that lasts far longer than any before is taken for stuck."""

from itertools import count
from threading import Lock

_TIMES_LONGEST = 10  # a run may last so many times the longest that has ended


class Progress:
    """Runs that have begun and not ended; called from the threads that compute. `now` is always an argument."""

    def __init__(self) -> None:
        """Nothing runs, and nothing has."""
        self._lock = Lock()
        self._numbers = count()
        self._running: dict[int, float] = {}  # when each began, in that order
        self._longest = 0.0

    def begin(self, now: float) -> int:
        """A run begins; give `end` what this returns."""
        with self._lock:
            run = next(self._numbers)
            self._running[run] = now
        return run

    def end(self, run: int, now: float) -> None:
        """The run ended, well or not."""
        with self._lock:
            self._longest = max(self._longest, now - self._running.pop(run))

    def stuck_for(self, now: float, patience: float) -> float | None:
        """How long a run has lasted if that is longer than `patience` and than runs may; None: none has."""
        with self._lock:
            oldest = next(iter(self._running.values()), now)
            allowed = max(patience, _TIMES_LONGEST * self._longest)
        lasted = now - oldest
        return lasted if lasted > allowed else None
