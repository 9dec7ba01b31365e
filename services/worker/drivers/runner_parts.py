"""What every version's runner works with."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.worker.domain.assignment import VersionSpec
from services.worker.drivers.open_streams import OpenStreams
from services.worker.drivers.traffic import Traffic
from services.worker.drivers.version_usage import NO_USAGE, Accounts, AnyUsage, VersionUsage
from services.worker.ports.cache import ArtifactCache
from services.worker.ports.flights import Flights, Reruns
from services.worker.ports.health import Health
from services.worker.ports.languages import Languages
from services.worker.ports.meter import Meter
from services.worker.ports.registry import TuningStore
from services.worker.ports.session import Probe, SessionLoader


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerDefaults:
    """Settings that versions fall back to, and bounds for all of them."""

    max_batch_size: int
    max_queued_rows: int
    max_queued_bytes: int
    concurrent_runs: int  # instances of a version
    intra_op_threads: int = 1  # of an instance
    max_queue_seconds: float = 2.0  # what would wait longer is refused; 0: no such bound
    drain_seconds: float
    stall_seconds: float = 10.0  # a run may last so long however short others were
    quiet_seconds: float = 0.5  # silence after which nobody routes here any more
    longest_backoff: float = 60.0  # seconds between attempts to load
    look_seconds: float = 0.5  # between looks at whether a run is stuck


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerParts:
    """What every version's runner works with."""

    cache: ArtifactCache
    probe: Probe
    tunings: TuningStore
    loader: SessionLoader
    flights: Flights
    reruns: Reruns
    meter: Meter
    health: Health
    traffic: Traffic  # of the whole worker
    loads: asyncio.Semaphore  # versions that load at once
    changed: Callable[[], None]  # a state changed: discovery is to be told
    announced: Callable[[], Awaitable[None]]  # done once discovery knows the states as of now
    delivered: Callable[[], None]  # a batch's callers have been told: their answers may be written
    defaults: RunnerDefaults
    languages: Languages | None = None  # None: language models are not served here
    accounts: Accounts | None = None  # None: nothing is counted
    streams: OpenStreams = field(default_factory=OpenStreams)  # of the whole worker

    def usage(self, spec: VersionSpec) -> AnyUsage:
        """What counts a version's requests."""
        return NO_USAGE if self.accounts is None else VersionUsage(self.accounts, spec)
