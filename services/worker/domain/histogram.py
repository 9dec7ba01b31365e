"""How often a value fell between which bounds: plain numbers, cheap to add to."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

SECONDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Histogram:
    """Counts by upper bounds, ascending; what is above the last counts too."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last: above all bounds
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, once or so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def add_all(self, values: Iterable[float]) -> None:
        """Count several."""
        bounds, counts, total = self.bounds, self.counts, 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        self.total += total

    def cumulative(self) -> list[tuple[float, int]]:
        """How many values are not above each bound, in the bounds' order; last: all of them."""
        return list(zip((*self.bounds, float("inf")), accumulate(self.counts), strict=True))
