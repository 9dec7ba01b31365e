"""The model inspector: reads what a model takes and gives out of its file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.registry.domain.model import Format, Signature


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of an artifact and where its content lies."""

    location: Path
    size_bytes: int


class ModelInspector(Protocol):
    """Judges an artifact without running it, whatever its bytes are."""

    async def inspect(self, kind: Format, files: Mapping[str, StoredFile]) -> Signature:
        """The signature of an artifact of this kind, whose `files` are given by their paths in it.

        InvalidArgumentError with reason MODEL_INVALID says what is wrong with which file.
        """
        ...
