"""What a backup says of itself: its files and their digests, where they come from, what is in them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

FORMAT = 1  # raise it when an older release could not restore what this one writes
_SHORT = 8  # hexadecimal digits in an id


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One file of a backup."""

    sha256: str
    size_bytes: int
    secret: bool  # whoever reads it can pretend to be somebody


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything but the shared contents, which the registry's part lists."""

    format: int
    release: str
    begin_time: str  # ISO 8601; what was stored before is in it
    end_time: str  # what was stored after is not
    state_dir: str  # where paths in certificates' records begin
    files: Mapping[str, BackupFile]  # by path in the backup
    parts: Mapping[str, Mapping[str, Any]]  # by service

    @property
    def has_secrets(self) -> bool:
        """Whether keys are in it."""
        return any(file.secret for file in self.files.values())

    @property
    def damaged(self) -> list[str]:
        """What was lost or wrong already when it was made."""
        return [text for part in self.parts.values() for text in part["damaged"]]

    @property
    def gone(self) -> list[str]:
        """What was lost where it was, and is in the repository all the same."""
        return [text for part in self.parts.values() for text in part["gone"]]

    def encoded(self) -> bytes:
        """As it is written."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode() + b"\n"


def decoded(content: bytes) -> Manifest:
    """What `encoded` wrote. ValueError, TypeError or KeyError if it is something else."""
    fields = json.loads(content)
    files = {path: BackupFile(**file) for path, file in fields.pop("files").items()}
    return Manifest(**fields, files=files)


def backup_id(content: bytes) -> str:
    """The name of the backup with this manifest: when it was begun, and the manifest's digest."""
    begun = datetime.fromisoformat(decoded(content).begin_time)
    return f"{begun:%Y%m%dT%H%M%SZ}-{hashlib.sha256(content).hexdigest()[:_SHORT]}"
