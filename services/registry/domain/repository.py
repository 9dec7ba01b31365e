"""The repository as Triton's clients see it: which versions are loaded, and the endpoint that loading makes."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from services.registry.domain.endpoint import Endpoint, Target
from services.registry.domain.worker import LoadState, Worker, WorkerVersion
from services.rpc.errors import FailedPreconditionError, UnavailableError
from services.rpc.names import EndpointName, VersionName

POOL = "default"  # what is loaded by the repository's methods is placed there
_MADE_BY_LOAD = {"made-by": "model-repository"}  # tags of an endpoint


class RepositoryState(Enum):
    """State of a version, in the words of Triton's clients."""

    READY = "READY"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A version in the repository's index."""

    version: VersionName
    state: RepositoryState
    reason: str = ""  # why it is not READY


def index_entry(
    version: VersionName, pools: Collection[str], workers: Iterable[Worker]
) -> IndexEntry:
    """A version that is placed on these pools, as the live workers report it."""
    live = list(workers)
    held = _reports(version, live)
    if not pools:
        if held:
            return IndexEntry(version, RepositoryState.UNLOADING)
        return IndexEntry(version, RepositoryState.UNAVAILABLE, "unloaded")
    mine = [worker for worker in live if worker.pool in pools and not worker.draining]
    placed = _reports(version, mine)
    if any(report.state is LoadState.READY for report in placed):
        return IndexEntry(version, RepositoryState.READY)
    if not mine:
        where = ", ".join(sorted(pools))
        return IndexEntry(
            version, RepositoryState.UNAVAILABLE, f"no worker of pool {where} is live"
        )
    failures = [report for report in placed if report.state is LoadState.FAILED]
    if len(failures) == len(mine):
        return IndexEntry(version, RepositoryState.UNAVAILABLE, failures[0].reason)
    return IndexEntry(version, RepositoryState.LOADING)


def is_loaded(version: VersionName, workers: Iterable[Worker]) -> bool:
    """Whether a worker of the repository's pool can serve it; FailedPreconditionError if none will.

    UnavailableError without a worker.
    """
    entry = index_entry(version, {POOL}, workers)
    if entry.state is not RepositoryState.UNAVAILABLE:
        return entry.state is RepositoryState.READY
    metadata = {"version": str(version), "pool": POOL}
    if not any(worker.pool == POOL and not worker.draining for worker in workers):
        raise UnavailableError(
            f"failed to load {version.short}: {entry.reason}; it is placed there, and is loaded when one comes",
            reason="NO_WORKER",
            metadata=metadata,
        )
    raise FailedPreconditionError(
        f"failed to load {version.short}: {entry.reason}",
        reason="LOAD_FAILED",
        metadata={**metadata, "load_error": entry.reason},
    )


def is_held(version: VersionName, workers: Iterable[Worker]) -> bool:
    """Whether a worker of the repository's pool has anything of it yet."""
    return bool(_reports(version, [worker for worker in workers if worker.pool == POOL]))


def _reports(version: VersionName, workers: Iterable[Worker]) -> list[WorkerVersion]:
    """What workers, ordered by name, say of a version."""
    ordered = sorted(workers, key=lambda worker: worker.name)
    return [held for worker in ordered for held in worker.versions if held.version == version]


def endpoint_name(version: VersionName) -> EndpointName:
    """What Triton's clients call a version: their word for both is the model's name."""
    return EndpointName(version.model)


def made_by_load(version: VersionName, now: datetime) -> Endpoint:
    """The endpoint that loading makes where there is none of the model's name."""
    return Endpoint(
        name=endpoint_name(version),
        targets=(Target(version, 1.0),),
        tags=_MADE_BY_LOAD,
        create_time=now,
        update_time=now,
    )


def is_as_made(endpoint: Endpoint) -> bool:
    """Whether loading made this endpoint and nobody has changed anything about it since."""
    target = endpoint.targets[0].target
    if not isinstance(target, VersionName):
        return False
    as_made = made_by_load(target, endpoint.create_time)
    return endpoint == replace(as_made, update_time=endpoint.update_time, etag=endpoint.etag)
