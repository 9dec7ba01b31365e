"""How long a version's runs take: whether the next one is short enough to hold up the event loop.

Only for versions whose runs take as long as their rows say: what was short tells nothing about others.
"""

# Handing a run to a thread and back costs two wake-ups; a run shorter than them is cheaper where it is
# (measured: worth it up to about 0.3 ms).
_SHORT = 0.0003  # seconds
_PROOF = 8  # short runs in a row before one is trusted


class Pace:
    """Watches runs; trusts that the next is short after `_PROOF` short ones of as many rows, until one is not."""

    def __init__(self) -> None:
        """Nothing is known, so nothing is short."""
        self._short_runs = 0
        self._rows = 0  # most rows of a run that was short, since one was not

    def is_short(self, rows: int) -> bool:
        """Whether a run of so many rows may be expected to be short."""
        return self._short_runs >= _PROOF and rows <= self._rows

    def note(self, rows: int, seconds: float) -> None:
        """Tell of a run that ended."""
        if seconds > _SHORT:
            self._short_runs = 0
            self._rows = 0
        else:
            self._short_runs += 1
            self._rows = max(self._rows, rows)
