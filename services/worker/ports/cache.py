"""Verified files of versions on this machine's disk."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from services.worker.domain.assignment import VersionSpec


class ArtifactCache(Protocol):
    """Folders by artifact digest; several workers may share one place."""

    def hold(self, spec: VersionSpec) -> AbstractAsyncContextManager[Path]:
        """The folder with the version's files, fetched if needed, verified now, kept while held.

        Raises LoadError.
        """
        ...
