"""The likeliest tokens of one row of logits, found without sorting all of them."""

import numpy as np

from services.worker.llm.domain.step import Array

_LINES = 64


class Candidates:
    """One row."""

    def __init__(self, logits: Array) -> None:
        self.logits = logits
        self.highest: np.float32 = logits.max()  # NaN if any of them is that

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return len(self.logits)

    def above(self, floor: float) -> tuple[Array, Array]:
        """Ids, ascending, and logits of all tokens that have at least this logit."""
        ids = np.flatnonzero(self.logits >= np.float32(floor))
        return ids, self.logits[ids]

    def top(self, count: int) -> tuple[Array, Array]:
        """Ids and logits of the so many largest, largest first; of equal ones, lower ids first."""
        ids, logits = self.above(self._floor(count))
        best = np.lexsort((ids, -logits))[:count]
        return ids[best], logits[best]

    def _floor(self, count: int) -> float:
        """None of the so many largest is below it."""
        columns = len(self.logits) // _LINES
        if count >= len(self.logits):
            return -np.inf
        if count > columns:
            return float(np.partition(self.logits, -count)[-count])
        # In lines under each other, so many columns' largest are so many logits: the least of them is low enough, and
        # there are far fewer columns to look at than logits.
        largest = self.logits[: columns * _LINES].reshape(_LINES, columns).max(axis=0)
        return float(np.partition(largest, -count)[-count])
