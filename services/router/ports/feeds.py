"""What the outside tells the router, and how it reads the clock."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from services.router.domain.catalog import CatalogUpdate
from services.router.domain.policy import Policy, PolicyUpdate
from services.router.domain.snapshot import Resource
from services.router.domain.topology import Topology, Worker


class CatalogSink(Protocol):
    """Hears the registry. Called from the event loop; never blocks."""

    def hear_registry(self, update: CatalogUpdate) -> None:
        """Take a message of the registry's watch."""

    def lose_registry(self) -> None:
        """The watch ended; another will be tried."""


class WorkerSink(Protocol):
    """Hears discovery. Called from the event loop; never blocks."""

    def hear_discovery(self, workers: Sequence[Worker]) -> None:
        """Take the complete list of live workers."""

    def lose_discovery(self) -> None:
        """The watch ended; another will be tried."""


class PolicySink(Protocol):
    """Hears metering. Called from the event loop; never blocks."""

    def hear_policy(self, update: PolicyUpdate) -> None:
        """Take a message of the policy's watch."""

    def lose_metering(self) -> None:
        """The watch ended; another will be tried."""


class Builder(Protocol):
    """Makes resources; deterministic, no I/O."""

    def build(self, topology: Topology, policy: Policy | None) -> Iterable[Resource]:
        """All resources of a topology, and of a policy unless nothing is known of one."""


class Clock(Protocol):
    """Tells the time."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def wall(self) -> float:
        """Seconds since the epoch."""
