"""What is being computed, known beyond the death of a worker; and a place to compute what may have caused it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.rpc.errors import InferplaneError
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.contents import Array
from services.worker.ports.session import Session

MODEL_CRASHED = "MODEL_CRASHED"  # reason of the error of a request that crashes what computes it


class Flights(Protocol):
    """What this machine's workers compute."""

    @property
    def knows_guilty(self) -> bool:
        """Whether a request is known that crashes its model: then each one is to be compared."""
        ...

    def recorded(self, session: Session) -> Session:
        """The session, what it computes being noted; its `run` may still be called from several threads."""
        ...

    def look(self) -> bool:
        """Look for workers that died; whether one was found that was not known."""
        ...

    def was_lost(self, feeds: Mapping[str, Array]) -> bool:
        """Whether a worker that died lately was computing this, maybe among others."""
        ...

    def blame(self, mark: str) -> None:
        """Tell all workers here of a request that crashes its model."""
        ...

    def is_guilty(self, mark: str) -> bool:
        """Whether a worker here has told so."""
        ...


@dataclass(frozen=True, slots=True)
class Rerun:
    """A request that may crash the process that computes it."""

    feeds: Mapping[str, Array]
    outputs: Sequence[str]


Told = Callable[[int, Mapping[str, Array] | InferplaneError], None]  # by the request's index


class Reruns(Protocol):
    """Computes where a crash harms nobody."""

    async def compute(
        self, spec: VersionSpec, folder: Path, requests: Sequence[Rerun], told: Told
    ) -> None:
        """One after the other; `told` is called once for each. One that crashes is InvalidArgumentError."""
        ...
