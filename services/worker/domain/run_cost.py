"""What runs cost, learned from those that ended: how long a queue will take, and what padding may cost."""

from dataclasses import dataclass

_NEW = 0.2  # weight of a run against all before it
_SOME = 4  # runs before short ones are believed
_LONG = 0.1  # seconds of a run, beside which a stop of the machine is little
_FIT = 0.05  # the same, for the line through runs of several sizes
_ENOUGH = 8  # runs before the line is believed


@dataclass(slots=True)
class RowCost:
    """Seconds of a row when batches are as full as they get: what those who wait will take."""

    seconds: float = 0.0  # 0: unknown
    _runs: int = 0
    _measured: float = 0.0

    def note(self, rows: int, seconds: float, *, full: bool) -> None:
        """Tell of a run; `full`: more waited than it could take.

        A run that could have been larger costs more for each row, so it only shows that rows cost no more. A machine
        that stood still for a moment is no slow model: a short run is not believed before there were some, of which
        the fastest counts, and later one run adds little.
        """
        self._runs += 1
        measured, known = seconds / max(rows, 1), self._measured
        if not known:
            self._measured = measured
        elif full and self.seconds:
            self._measured = known + _NEW * (min(measured, 2 * known) - known)
        else:
            self._measured = min(known, measured)
        if self.seconds or self._runs >= _SOME or seconds >= _LONG:
            self.seconds = self._measured


@dataclass(slots=True)
class CellCost:
    """A run's time as a line over its cells: what a run costs at all, what each cell adds. Recent runs weigh more."""

    runs: int = 0
    _cells: float = 0.0  # weighted means
    _seconds: float = 0.0
    _cells2: float = 0.0
    _both: float = 0.0

    def note(self, cells: int, seconds: float) -> None:
        """Tell of a run that ended."""
        self.runs += 1
        weight = max(_FIT, 1 / self.runs)
        self._cells += weight * (cells - self._cells)
        self._seconds += weight * (seconds - self._seconds)
        self._cells2 += weight * (cells * cells - self._cells2)
        self._both += weight * (cells * seconds - self._both)

    def cells_per_run(self) -> float | None:
        """How many cells cost as much as a run costs at all; None: not known yet."""
        spread = self._cells2 - self._cells**2
        if self.runs < _ENOUGH or spread <= 0.01 * self._cells**2:
            return None
        slope = (self._both - self._cells * self._seconds) / spread
        if slope <= 0:
            return None  # more cells cost nothing that can be seen
        return max(0.0, self._seconds / slope - self._cells)
