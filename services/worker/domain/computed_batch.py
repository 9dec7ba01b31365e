"""What one run of a session was: how much it computed and where the time went."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedBatch:
    """A run that gave answers."""

    rows: int
    # Seconds in the queue of each request whose first part is in this run; empty: a later part of a split request.
    waits: Sequence[float]
    input_ns: int  # putting requests together: joining, padding
    infer_ns: int  # in the session
    output_ns: int  # taking the outputs apart
    cells: int = 0  # elements of padded inputs
    padded_cells: int = 0  # how many of them are padding

    @property
    def compute_ns(self) -> int:
        """All of it but waiting."""
        return self.input_ns + self.infer_ns + self.output_ns
