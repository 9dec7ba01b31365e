"""A loaded model, and how it comes to be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.worker.domain.assignment import Tuning, VersionSpec
from services.worker.domain.contents import Array
from services.worker.domain.instance_plan import Instance


class Session(Protocol):
    """A loaded model; `run` may be called from several threads at once."""

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Compute the named outputs; frees the GIL meanwhile.

        Raises InvalidArgumentError if the model refuses these inputs, ResourceExhaustedError if memory is short.
        """
        ...


class SessionLoader(Protocol):
    """Makes sessions in this process."""

    def load(self, spec: VersionSpec, folder: Path, instance: Instance | None = None) -> Session:
        """Load the version whose verified files lie in `folder`; blocks. Raises LoadError.

        `instance` says which threads are its; None: those that the version's settings say.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What trying a version in a process of its own showed."""

    batchable: bool
    batching_reason: str  # why it is not batchable; empty if it is
    steady: bool  # whether a run's time depends on the number of rows alone
    padding_reason: str = ""  # why requests of unlike lengths must not share a run; empty: they may
    warnings: tuple[str, ...] = ()  # what is otherwise than declared, without being fatal
    tuning: Tuning | None = None  # measured now


class Probe(Protocol):
    """Tries versions where a crash, an endless loop or hunger for memory harms nobody."""

    async def examine(self, spec: VersionSpec, folder: Path) -> ProbeReport:
        """Load, compare with the signature, run examples. Raises LoadError."""
        ...
