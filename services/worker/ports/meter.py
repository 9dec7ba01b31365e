"""Where the worker's measurements go."""

from collections.abc import Callable
from typing import Protocol

from services.worker.domain.counters import Outcome


class VersionMeter(Protocol):
    """Measurements of one version."""

    def called(self, outcome: Outcome, seconds: float) -> None:
        """One call ended."""
        ...

    def waited(self, seconds: float) -> None:
        """One request waited that long in the queue."""
        ...

    def computed(self, rows: int, seconds: float) -> None:
        """One batch was computed."""
        ...

    def watch_queue(self, rows: Callable[[], int]) -> None:
        """Where to look how many rows wait, whenever somebody wants to know."""
        ...

    def close(self) -> None:
        """The version is gone: its labels go too."""
        ...


class Meter(Protocol):
    """Measurements of all versions."""

    def version(self, name: str) -> VersionMeter:
        """The meter of one version."""
        ...
