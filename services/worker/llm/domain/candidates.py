"""The likeliest tokens of one row of logits, found without sorting all of them.

The row lies in 64 lines, one under the other. The largest logit of each column bounds its others, so that most columns
need not be looked at.
"""

import numpy as np

from services.worker.llm.domain.step import Array

LINES = 64
FIRST = 32  # columns that are looked at first: those with the largest logits


class Candidates:
    """One row. Ids and logits come column by column."""

    def __init__(self, logits: Array) -> None:
        columns = -(-len(logits) // LINES)
        if columns * LINES > len(logits):
            padded = np.full(columns * LINES, -np.inf, np.float32)
            padded[: len(logits)] = logits
            logits = padded
        self._table = logits.reshape(LINES, columns)
        self.largest = self._table.max(axis=0)
        self.highest: np.float32 = self.largest.max()  # NaN if any of the logits is that

    @property
    def table(self) -> Array:
        """All logits; the id of one is its line times the number of columns, plus its column."""
        return self._table

    def order(self) -> Array:
        """All columns; `FIRST` of them that have the largest logits come first."""
        if len(self.largest) <= FIRST:
            return np.arange(len(self.largest))
        return np.argpartition(-self.largest, FIRST - 1)

    def ids(self, columns: Array) -> Array:
        """Of tokens in these columns."""
        ids: Array = (columns[:, None] + np.arange(LINES) * len(self.largest)).ravel()
        return ids

    def logits(self, columns: Array) -> Array:
        """Of the same."""
        return np.take(self._table, columns, axis=1).T.ravel()

    def above(self, floor: float) -> tuple[Array, Array]:
        """Ids and logits of all tokens that have at least this logit."""
        columns = np.flatnonzero(self.largest >= floor)
        logits = self.logits(columns)
        kept = np.flatnonzero(logits >= floor)
        return self.ids(columns)[kept], logits[kept]

    def top(self, count: int) -> tuple[Array, Array]:
        """Ids and logits of the so many largest, largest first; of equal ones, lower ids first."""
        # The largest of so many columns are so many tokens: none of those looked for is below the least of them.
        bounds = self.largest if count <= len(self.largest) else self._table.ravel()
        floor = np.partition(bounds, -count)[-count] if count <= len(bounds) else -np.inf
        ids, logits = self.above(floor)
        best = np.lexsort((ids, -logits))[:count]
        return ids[best], logits[best]
