"""What computes for a loaded version: the batcher of a tensor model, the engine of a language model."""

from typing import Protocol


class Compute(Protocol):
    """Runs for as long as the version is loaded."""

    async def run(self) -> None:
        """Compute what comes in, until cancelled; what it holds is given back then."""
        ...

    def stuck_for(self, patience: float) -> float | None:
        """How long it has made no progress if that is longer than `patience` seconds and than it may; None: it has."""
        ...
