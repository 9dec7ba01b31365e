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

    def find(self, mass: float) -> tuple[int, float]:
        """The weight that this mass falls in, and the running sum with it.

        What is beyond the total falls in the last weight; none falls in one of 0, if there are others.
        """
        piece = _place(self._ends, mass)
        begin = piece * _PIECE
        before = float(self._ends[piece - 1]) if piece else 0.0
        within = self._weights[begin : begin + _PIECE].astype(np.float64).cumsum()
        place = _place(within, mass - before)
        return begin + place, before + float(within[place])


def _place(running: Array, mass: float) -> int:
    place = int(running.searchsorted(mass, side="right"))
    if place < len(running):
        return place
    return int(running.searchsorted(running[-1], side="left"))
