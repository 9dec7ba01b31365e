"""An area of metering: identity, ledger, budgets. Each is built apart and composed by `__main__`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc
from prometheus_client import CollectorRegistry

from services.metering.adapters.database import Database
from services.metering.settings import MeteringSettings
from services.rpc.clock import Clock


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every area is built from."""

    settings: MeteringSettings
    database: Database  # open and at the newest schema
    clock: Clock
    metrics: CollectorRegistry
    folder: Path  # metering's own, 0700


class Area(Protocol):
    """A part of the process with services and background work of its own."""

    @property
    def services(self) -> Sequence[str]:
        """Full names of its gRPC services."""
        ...

    def register(self, server: grpc.aio.Server) -> None:
        """Put its services on the server."""
        ...

    async def start(self) -> None:
        """Make what must be there before the first call. The database is open, nothing listens yet."""
        ...

    async def run(self) -> None:
        """Background work until cancelled; if it raises, the process ends. May return if there is none."""
        ...

    def interrupt(self) -> None:
        """End the streams there are: what they tell may be old. Whoever reads connects again, or to another process."""
        ...

    def close(self) -> None:
        """End its streams, so that they don't hold up the stop."""
        ...
