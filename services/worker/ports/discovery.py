"""How the worker tells the mesh that it lives, and with what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.rpc.names import VersionName
from services.worker.domain.counters import Counters
from services.worker.domain.execution import Execution
from services.worker.domain.load_state import LoadState
from services.worker.llm.ports.engine import EngineLoad


@dataclass(frozen=True, slots=True)
class VersionReport:
    """One version on this worker as of now."""

    name: VersionName
    state: LoadState
    reason: str
    counters: Counters
    execution: Execution | None = None  # None: not loaded
    engine: EngineLoad | None = None  # of language models that are loaded


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The worker as of now."""

    draining: bool
    in_flight: int
    versions: Sequence[VersionReport]


class RegistrationError(Exception):
    """Discovery could not be told; the lease runs on until it ends."""


class Registration(Protocol):
    """This worker's lease."""

    async def renew(self, report: WorkerReport) -> None:
        """Begin or renew the lease and replace what is known. Raises RegistrationError."""
        ...

    async def end(self) -> None:
        """End the lease at once; not being able to is no error, it ends by itself."""
        ...
