"""One service's part of a backup, as a program that the command line starts: its words, its answer as JSON."""

import argparse
import errno
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from platformdirs import user_state_path
from pydantic import Field

from services.rpc.errors import (
    FailedPreconditionError,
    InferplaneError,
    InternalError,
    ResourceExhaustedError,
)
from services.rpc.settings import Settings, SettingsError

MANIFEST = "manifest.json"

_FULL = {errno.ENOSPC, errno.EDQUOT}


class StoreSettings(Settings):
    """Where a service's store is; the same variables that the service itself reads."""

    state_dir: Path = Field(default_factory=lambda: user_state_path("inferplane"))
    store_url: str = ""  # empty: SQLite in state_dir
    store_password_file: Path | None = None


@dataclass(frozen=True, slots=True)
class BackupPlace:
    """Where one backup is; nobody else uses `folder` meanwhile."""

    folder: Path  # its own
    artifacts: Path  # contents by digest, which all backups of a repository share

    @property
    def secrets(self) -> Path:
        """Its folder of secrets; there is none if they are left out."""
        return self.folder / "secrets"


class BackupPart(Protocol):
    """What a service does of a backup. Blocks."""

    def create(self, place: BackupPlace) -> Mapping[str, Any]:
        """Put copies there, and contents that are not there yet; what the manifest says of it."""
        ...

    def verify(self, place: BackupPlace, told: Mapping[str, Any]) -> Sequence[str]:
        """Everything that is not as `told`, or doesn't add up."""
        ...

    def require_empty(self, place: BackupPlace) -> None:
        """FailedPreconditionError if a restore would write over anything else than the same."""
        ...

    def restore(self, place: BackupPlace) -> Sequence[str]:
        """Put everything where the service has it; what the operator should know."""
        ...


def require_same(existing: Path, saved: Path) -> None:
    """FailedPreconditionError unless a secret that is in the way of a restore is the one that was saved."""
    if saved.exists() and saved.read_bytes() == existing.read_bytes():
        return
    raise FailedPreconditionError(
        f"{existing} is there and not the one of the backup; move it away if it is worth nothing any more",
        reason="NOT_EMPTY",
        metadata={"place": str(existing)},
    )


def run(service: str, part: Callable[[], BackupPart], arguments: Sequence[str]) -> int:
    """Do one act, and write what came of it to standard output; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"services.{service}.backup")
    parser.add_argument("act", choices=("create", "verify", "require-empty", "restore"))
    parser.add_argument("folder", type=Path, help="the one backup")
    parser.add_argument("artifacts", type=Path, help="contents that all backups share")
    given = parser.parse_args(arguments)
    try:
        place = BackupPlace(given.folder.absolute(), given.artifacts.absolute())
        answer = {"done": perform(given.act, part(), place, service)}
    except InferplaneError as error:
        answer = {"error": _told(error)}
    except SettingsError as error:
        answer = {"error": _told(FailedPreconditionError(str(error), reason="BAD_SETTING"))}
    except KeyboardInterrupt:  # whoever started it is interrupted too, and tells
        return 130
    except OSError as error:
        answer = {"error": _told(_of_system(error))}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if "done" in answer else 1


def perform(act: str, part: BackupPart, place: BackupPlace, service: str) -> Any:
    """One act; what is answered, as JSON has it."""
    if act == "create":
        return part.create(place)
    if act == "verify":
        told = json.loads((place.folder / MANIFEST).read_text())["parts"][service]
        return list(part.verify(place, told))
    if act == "restore":
        return list(part.restore(place))
    part.require_empty(place)
    return None


def _told(error: InferplaneError) -> dict[str, Any]:
    return {
        "kind": error.kind.value,
        "reason": error.reason,
        "message": error.message,
        "metadata": error.metadata,
    }


def _of_system(error: OSError) -> InferplaneError:
    if error.errno in _FULL:
        return ResourceExhaustedError(
            f"no room for {error.filename or 'the backup'}: {error.strerror}", reason="DISK_FULL"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR):
        return FailedPreconditionError(
            f"{error.filename}: {error.strerror}", reason="FILE_UNUSABLE"
        )
    return InternalError(f"{error.filename or 'a file'}: {error.strerror or error}")
