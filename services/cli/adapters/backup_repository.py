"""A folder with backups: each in a folder of its own, and the contents that they share.

repository.json          says what the folder is
backups/{id}/            manifest.json, registry.db, metering.db, secrets/; never changed
backups/.new-{…}/        one that is being made, or that a crash left
artifacts/sha256/ab/…    contents of model versions, by digest
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.cli.domain.backup_manifest import FORMAT, Manifest, backup_id, decoded
from services.rpc.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
)
from services.rpc.secret_file import sync_folder, write_secret

MANIFEST = "manifest.json"
SECRETS = "secrets"

_MARK = "repository.json"
_NEW = ".new-"
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Backup:
    """One that is complete."""

    id: str
    folder: Path
    manifest: Manifest


class BackupRepository:
    """Backups in one folder; one process at a time changes it."""

    def __init__(self, folder: Path) -> None:
        """Nothing is touched yet."""
        self.folder = folder.expanduser().absolute()
        self.artifacts = self.folder / "artifacts"
        self._backups = self.folder / "backups"

    def prepare(self) -> None:
        """Make it, unless it is there. FailedPreconditionError if the folder is something or somebody else's."""
        try:
            self._prepare()
        except PermissionError as error:
            # Whoever may only write there can't keep others out of it.
            raise FailedPreconditionError(
                f"user {os.geteuid()} can't keep backups in {self.folder}: the folder (in a container: that of the "
                "machine which is mounted there) has to belong to this user",
                reason="NO_REPOSITORY",
                metadata={"repository": str(self.folder)},
            ) from error

    def _prepare(self) -> None:
        mark = self.folder / _MARK
        if mark.exists():
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise FailedPreconditionError(
                f"{self.folder} holds something else; name an empty or a new folder",
                reason="NO_REPOSITORY",
                metadata={"repository": str(self.folder)},
            )
        self.folder.chmod(0o700)
        for folder in (self.artifacts, self._backups):
            folder.mkdir(mode=0o700)
        write_secret(mark, json.dumps({"inferplane-backups": FORMAT}).encode())

    def require(self) -> None:
        """NotFoundError if there is none."""
        if not (self.folder / _MARK).exists():
            raise NotFoundError(
                f"{self.folder} is no repository of backups; one is made by: inferplane backup create",
                reason="NO_REPOSITORY",
                metadata={"repository": str(self.folder)},
            )

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Keep others from changing it, or (`alone`) from using it. FailedPreconditionError if somebody does."""
        descriptor = os.open(self.folder / _MARK, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise FailedPreconditionError(
                f"another command is at work in {self.folder}; wait until it has ended",
                reason="REPOSITORY_IN_USE",
                metadata={"repository": str(self.folder)},
            ) from error
        finally:
            os.close(descriptor)

    @contextmanager
    def new_folder(self) -> Iterator[Path]:
        """Where the next backup is made; what is left in it is removed. Ones that a crash left are, too."""
        for left in self._backups.glob(f"{_NEW}*"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix=_NEW, dir=self._backups) as place:
            folder = Path(place) / "backup"
            folder.mkdir(mode=0o700)
            yield folder

    def seal(self, folder: Path, manifest: Manifest) -> Backup:
        """Complete a backup: it is durable and has its name when this returns."""
        content = manifest.encoded()
        write_secret(folder / MANIFEST, content)
        for path in manifest.files:
            _sync_file(folder / path)
        for inside in (path for path in folder.rglob("*") if path.is_dir()):
            sync_folder(inside)
        name = backup_id(content)
        folder.rename(self._backups / name)
        sync_folder(self._backups)
        return Backup(name, self._backups / name, manifest)

    def backups(self) -> list[Backup]:
        """All that are complete, oldest first. DataLossError if one's manifest can't be read."""
        folders = [path for path in self._backups.iterdir() if not path.name.startswith(".")]
        found = [self._read(folder) for folder in folders]
        return sorted(found, key=lambda backup: (backup.manifest.begin_time, backup.id))

    def find(self, wanted: str) -> Backup:
        """One by its id or the beginning of it, or the newest. NotFoundError, FailedPreconditionError."""
        there = self.backups()
        found = [one for one in there if wanted == LATEST or one.id.startswith(wanted)]
        if not found:
            raise NotFoundError(
                f"there is no backup {wanted} in {self.folder}"
                + ("; one is made by: inferplane backup create" if not there else ""),
                reason="NO_BACKUP",
                metadata={"backup": wanted},
            )
        if len(found) > 1 and wanted != LATEST:
            names = ", ".join(one.id for one in found)
            raise FailedPreconditionError(
                f"{wanted} may be {names}; say more of it", reason="AMBIGUOUS_BACKUP"
            )
        return found[-1]

    def remove(self, backups: Sequence[Backup]) -> None:
        """Remove backups; what only they had of the shared contents goes with them."""
        for backup in backups:
            hidden = backup.folder.with_name(f"{_NEW}{backup.id}")
            backup.folder.rename(hidden)  # gone at once, if not all its files are
            shutil.rmtree(hidden)
        wanted = {one["sha256"] for kept in self.backups() for one in _contents(kept)}
        for path in self.artifacts.glob("sha256/*/*"):
            if path.name not in wanted:
                path.unlink()

    def used_bytes(self, backups: Collection[Backup]) -> int:
        """What they take on the disk, contents that several have once."""
        contents = {one["sha256"]: one["size_bytes"] for kept in backups for one in _contents(kept)}
        files = [file.size_bytes for backup in backups for file in backup.manifest.files.values()]
        total: int = sum(files) + sum(contents.values())
        return total

    def _read(self, folder: Path) -> Backup:
        try:
            return Backup(folder.name, folder, decoded((folder / MANIFEST).read_bytes()))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataLossError(
                f"{folder / MANIFEST} can't be read ({error}); without it the backup is worth nothing:"
                f" remove {folder}",
                reason="MANIFEST_UNREADABLE",
                metadata={"backup": folder.name},
            ) from error


def _contents(backup: Backup) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = list(backup.manifest.parts["registry"]["artifacts"])
    return found


@contextmanager
def told(repository: Path) -> Iterator[None]:
    """Turn what the system says of files of a repository into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceExhaustedError(
                f"no room for {error.filename or repository}; free some, or name another --repository",
                reason="DISK_FULL",
                metadata={"repository": str(repository)},
            ) from error
        raise FailedPreconditionError(
            f"{error.filename or repository}: {error.strerror}",
            reason="FILE_UNUSABLE",
            metadata={"repository": str(repository)},
        ) from error


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
