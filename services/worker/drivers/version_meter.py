"""Puts the time to what a version's queue and runs report."""

import time
from collections.abc import Callable

from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.statistics import VersionStatistics


class VersionMeter:
    """BatchMeter of one version."""

    def __init__(self, statistics: VersionStatistics) -> None:
        self._statistics = statistics

    def computed(self, batch: ComputedBatch) -> None:
        """One run of the session gave answers."""
        self._statistics.computed(batch, time.time_ns())

    def watch_queue(self, rows: Callable[[], int], requests: Callable[[], int]) -> None:
        """Where to look how much waits, whenever somebody wants to know."""
        self._statistics.queued_rows = rows
        self._statistics.queued_requests = requests
