"""A snapshot as published: what every Envoy is brought to."""

from dataclasses import dataclass

from services.router.domain.snapshot import Snapshot
from services.router.domain.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A consistent snapshot and the topology that it was built from."""

    snapshot: Snapshot
    topology: Topology
    time: float  # seconds since the epoch
    # False: workers may still be registering after a restart of everything; an Envoy that serves already should wait.
    settled: bool
