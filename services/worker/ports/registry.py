"""What the worker asks of the registry: assignments as they change, and the bytes of files."""

from collections.abc import AsyncIterator
from typing import Protocol

from services.rpc.names import VersionName
from services.worker.domain.assignment import ChangeBatch, Tuning


class RevisionUnavailableError(Exception):
    """Changes after that revision are no longer kept: begin again at 0."""


class ConnectionLostError(Exception):
    """The registry cannot be reached now."""


class AssignmentSource(Protocol):
    """Placements and versions as they change."""

    def watch(self, after_revision: int) -> AsyncIterator[ChangeBatch]:
        """Changes after a revision; 0: first everything as it is.

        Raises RevisionUnavailableError and ConnectionLostError; ends only if the registry ends the stream.
        """
        ...


class FileSource(Protocol):
    """Bytes of a version's files."""

    def download(self, version: VersionName, path: str, offset: int) -> AsyncIterator[bytes]:
        """Chunks from `offset` to the end. Raises ConnectionLostError (resume later) and LoadError (hopeless)."""
        ...


class TuningStore(Protocol):
    """What measuring found, kept with versions."""

    async def keep(self, version: VersionName, tuning: Tuning) -> None:
        """Keep it unless another worker's is kept already. Raises ConnectionLostError."""
        ...
