"""Placements: which versions the workers of a pool load, and how far they are."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from services.registry.domain.worker import LoadState, VersionExecution, Worker
from services.rpc.names import PlacementName, VersionName, WorkerName


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Says that the workers of a pool load a version."""

    name: PlacementName
    create_time: datetime
    etag: str = ""

    @property
    def version(self) -> VersionName:
        """The version that is placed."""
        return self.name.version


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """State of a placed version on one worker."""

    worker: WorkerName
    state: LoadState
    reason: str
    execution: VersionExecution | None = None  # None: not loaded


@dataclass(frozen=True, slots=True)
class PlacementStatus:
    """State of a placed version on the live workers of its pool, ordered by worker."""

    workers: tuple[WorkerStatus, ...]

    @property
    def ready_workers(self) -> int:
        """Workers on which it is READY."""
        return sum(worker.state is LoadState.READY for worker in self.workers)


def placement_status(name: PlacementName, live: Iterable[Worker]) -> PlacementStatus:
    """What live workers report of a placement; PENDING where they have not said anything yet."""
    statuses = []
    for worker in sorted(live, key=lambda worker: worker.name):
        if worker.pool != name.pool:
            continue
        reported = {v.version: v for v in worker.versions}.get(name.version)
        statuses.append(
            WorkerStatus(worker.name, LoadState.PENDING, worker.untold)
            if reported is None
            else WorkerStatus(worker.name, reported.state, reported.reason, reported.execution)
        )
    return PlacementStatus(tuple(statuses))
