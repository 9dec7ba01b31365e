"""The process's memory, as far as it can be given back to the system."""

from typing import Protocol


class Memory(Protocol):
    """What runs and loads left behind; from any thread."""

    def resident(self) -> int:
        """Bytes that the process occupies now; 0 where the system doesn't say. Takes microseconds."""
        ...

    def turnover(self) -> int:
        """How often a model came or went so far."""
        ...

    def release(self) -> None:
        """Give back what nothing uses; may take tens of milliseconds, runs may go on meanwhile."""
        ...
