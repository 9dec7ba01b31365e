"""Workers: live processes that serve versions, and what they report."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from services.rpc.names import VersionName, WorkerName


class LoadState(Enum):
    """Where a version stands on one worker."""

    PENDING = "PENDING"
    PULLING = "PULLING"
    LOADING = "LOADING"
    WARMING = "WARMING"
    READY = "READY"
    DRAINING = "DRAINING"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCounters:
    """Totals of one version since the worker started."""

    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    rejected: int = 0
    duration_us: int = 0  # sum over answered calls


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionExecution:
    """How a worker runs a version that it has loaded."""

    max_batch_size: int = 1  # rows computed at once; 1: no batching
    batching_off_reason: str = ""
    instances: int = 1
    intra_op_threads: int = 1
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """How busy the engine of a language model is."""

    waiting: int  # requests
    running: int
    blocks: int  # of its cache
    used_blocks: int
    cached_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerVersion:
    """A version on a worker."""

    version: VersionName
    state: LoadState
    reason: str = ""
    counters: VersionCounters | None = VersionCounters()  # None: discovery doesn't carry them
    execution: VersionExecution | None = None  # None: not loaded
    engine: EngineLoad | None = None  # of language models that are loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A live worker process; it exists while its lease is renewed."""

    name: WorkerName
    pool: str
    zone: str = ""
    address: str
    draining: bool = False
    versions: tuple[WorkerVersion, ...] = ()
    in_flight: int = 0
    pid: int = 0
    release: str = ""
    metrics_address: str = ""
    start_time: datetime | None = None
    untold: str = ""  # what of it could not be told to discovery

    @property
    def routing(self) -> tuple[object, ...]:
        """What routing needs to know; only changes of this are told to watchers."""
        states = tuple(sorted((str(v.version), v.state.value) for v in self.versions))
        return (self.address, self.pool, self.zone, self.draining, states)
