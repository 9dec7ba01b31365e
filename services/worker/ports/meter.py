"""Where the worker's measurements are shown."""

from collections.abc import Callable
from typing import Protocol

from services.rpc.names import VersionName
from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.statistics import VersionStatistics


class BatchMeter(Protocol):
    """Measurements of one version's queue and runs; called in the event loop."""

    def computed(self, batch: ComputedBatch) -> None:
        """One run of the session gave answers."""
        ...

    def watch_queue(self, rows: Callable[[], int], requests: Callable[[], int]) -> None:
        """Where to look how much waits, whenever somebody wants to know."""
        ...


class Meter(Protocol):
    """Statistics of the versions that are loaded; they are read when somebody asks."""

    def show(self, name: VersionName, statistics: VersionStatistics) -> None:
        """The version is loaded."""
        ...

    def hide(self, name: VersionName) -> None:
        """The version is gone: its labels go too."""
        ...
