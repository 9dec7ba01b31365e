"""Running sums of many weights: where a mass falls in them, without summing one by one."""

import numpy as np

from services.worker.llm.domain.step import Array

_PIECE = 256  # weights that are summed at once


class RunningSums:
    """Of weights that are not negative."""

    def __init__(self, weights: Array) -> None:
        self._weights = weights
        pieces = np.add.reduceat(weights, np.arange(0, len(weights), _PIECE))
        self._ends = pieces.astype(np.float64).cumsum()

    @property
    def total(self) -> float:
        """Sum of all."""
        return float(self._ends[-1])

    def place(self, mass: float) -> int:
        """Of the weight that this mass falls in; what is beyond the total falls in the last. Never one of 0, if any."""
        piece = _place(self._ends, mass)
        begin = piece * _PIECE
        within = self._weights[begin : begin + _PIECE].astype(np.float64).cumsum()
        before = float(self._ends[piece - 1]) if piece else 0.0
        return begin + _place(within, mass - before)


def _place(running: Array, mass: float) -> int:
    place = int(running.searchsorted(mass, side="right"))
    return min(place, int(running.searchsorted(running[-1], side="left")))
