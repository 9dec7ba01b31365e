"""Sums of what a batcher computed, for a benchmark to divide."""

from __future__ import annotations

from services.worker.domain.computed_batch import ComputedBatch


class RunSums:
    """A batcher's meter: runs, their rows, their cells and those of them that were padding."""

    def __init__(self) -> None:
        self.runs = self.rows = self.cells = self.padded = 0

    def computed(self, batch: ComputedBatch) -> None:
        """One run."""
        self.runs += 1
        self.rows += batch.rows
        self.cells += batch.cells
        self.padded += batch.padded_cells

    def watch_queue(self, rows: object, requests: object) -> None:
        """Nobody looks."""
