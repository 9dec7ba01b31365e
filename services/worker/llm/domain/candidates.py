"""The likeliest tokens of one row of logits, found without sorting or even exponentiating all of them.

The row lies in 64 lines, one under the other. The largest logit of each column bounds its others, so that most columns
need not be looked at.
"""

import numpy as np

from services.worker.llm.domain.step import Array

LINES = 64


class Candidates:
    """One row; columns come in the order of their largest logits, which is the order of the candidates, too."""

    def __init__(self, logits: Array) -> None:
        width = len(logits) // LINES
        if width * LINES < len(logits):
            width += 1
            padded = np.full(width * LINES, -np.inf, np.float32)
            padded[: len(logits)] = logits
            logits = padded
        self._table = logits.reshape(LINES, width)
        self._largest = self._table.max(axis=0)
        self.columns = width
        # NaN if any of the logits is that.
        self.highest = float(self._largest.max())
        self._order: Array | None = None

    def order(self) -> Array:
        """Columns, that with the largest logit first."""
        if self._order is None:
            self._order = np.argsort(-self._largest, kind="stable")
        return self._order

    def bounds(self) -> Array:
        """The largest logit of each column, in their order."""
        bounds: Array = self._largest[self.order()]
        return bounds

    def of(self, columns: int) -> tuple[Array, Array]:
        """Ids and logits in the first so many columns, column by column: more columns only add at the end."""
        order = self.order()[:columns]
        lines = np.arange(LINES) * self.columns
        ids = (order[:, None] + lines).ravel()
        return ids, self._table[:, order].T.ravel()

    def top(self, count: int) -> tuple[Array, Array]:
        """Ids and logits of the so many largest, largest first; of equal ones, lower ids first."""
        bounds = self.bounds()
        columns = self.columns
        if count <= columns:
            # A column can hold one of them if its largest isn't below the last of so many columns' largest.
            columns = int(np.count_nonzero(bounds >= bounds[count - 1]))
        ids, logits = self.of(columns)
        if count < len(logits):
            least = np.partition(logits, len(logits) - count)[len(logits) - count]
            kept = logits >= least
            ids, logits = ids[kept], logits[kept]
        best = np.lexsort((ids, -logits))[:count]
        return ids[best], logits[best]
