"""The registry's part of a backup: models, endpoints and placements, and the contents of all versions that are READY.

The database comes first, then the contents that it names. Contents never change and are there before their version is
READY, so whatever the copy of the database names is on the disk, unless the version was deleted since: then the copy is
made again. The other way round, a version that becomes READY meanwhile would be in the copy without its contents.
"""

import errno
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from services.registry.adapters.blob_copies import check_blob, copy_blob, path_in
from services.registry.adapters.schema import migrate
from services.registry.adapters.tables import blob_uses, changes, log_bounds, metadata, resources
from services.registry.domain.model import BlobId, VersionState
from services.rpc import postgres, state_lock
from services.rpc.backup_part import BackupPlace, StoreSettings, run
from services.rpc.database_copy import differing_counts, file_problems, opened, row_counts
from services.rpc.errors import DataLossError
from services.rpc.postgres import Target
from services.rpc.settings import SettingsError, load
from services.rpc.store_copy import StoreCopy, schema_of_file

_DATABASE = "registry.db"
_MOST_LOOKS = 5  # at a registry whose versions are deleted all the time
_LOST = {errno.ENOENT, errno.EIO}  # of a content; anything else is no fault of one


class RegistryPart:
    """A BackupPart."""

    def __init__(self, settings: StoreSettings) -> None:
        """Assign only."""
        base = settings.state_dir.absolute() / "registry" / _DATABASE
        file, target = _place(settings, base)
        self._base = file or base
        self._blobs = self._base.with_suffix(".blobs")
        self._store = StoreCopy(
            service="registry",
            file=file,
            target=target,
            lock="write",
            metadata=metadata,
            migrate=migrate,
            telling=["resources"],
        )

    def create(self, place: BackupPlace) -> Mapping[str, Any]:
        copy = place.folder / _DATABASE
        added: list[BlobId] = []
        lost: dict[BlobId, str] = {}
        for _ in range(_MOST_LOOKS):
            copy.unlink(missing_ok=True)
            self.save(copy)
            wanted = _contents(copy)
            known, lost = lost, {}
            for blob, versions in wanted.items():
                try:
                    if copy_blob(self._blobs, place.artifacts, blob):
                        added.append(blob)
                except (OSError, DataLossError) as error:
                    if isinstance(error, OSError) and error.errno not in _LOST:
                        raise
                    lost[blob] = _lost(blob, versions, error)
            if lost.keys() <= known.keys():
                break  # nothing is missing, or what two copies name: no deletion is behind that
        return {
            "engine": self._store.engine,
            "schema": schema_of_file(copy),
            "rows": row_counts(copy),
            "artifacts": [
                {"sha256": blob.sha256, "size_bytes": blob.size_bytes} for blob in sorted(wanted)
            ],
            "added": {"count": len(added), "bytes": sum(blob.size_bytes for blob in added)},
            "damaged": sorted(lost.values()),
            "gone": [
                f"content {blob.sha256} of {', '.join(wanted[blob])} is gone where it was;"
                " the repository has it from an earlier backup"
                for blob in sorted(wanted.keys() - lost.keys())
                if not path_in(self._blobs, blob).exists()
            ],
        }

    def save(self, target: Path) -> None:
        """Copy the database as it is at one moment."""
        self._store.save(target)

    def verify(self, place: BackupPlace, told: Mapping[str, Any]) -> Sequence[str]:
        copy = place.folder / _DATABASE
        problems = [f"{_DATABASE}: {problem}" for problem in file_problems(copy)]
        if problems:
            return problems
        problems += differing_counts(told["rows"], row_counts(copy))
        wanted = _contents(copy)
        if sorted(wanted) != sorted(BlobId(**one) for one in told["artifacts"]):
            problems.append(f"{_DATABASE} names other contents than the manifest")
        for blob in sorted(wanted):
            problem = check_blob(place.artifacts, blob)
            if problem is not None:
                problems.append(f"{problem} (of {', '.join(wanted[blob])})")
        return problems

    def require_empty(self, place: BackupPlace) -> None:
        del place  # contents that are there already do no harm: their names are their digests
        self._store.require_empty()

    def restore(self, place: BackupPlace) -> Sequence[str]:
        self._base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = place.folder / _DATABASE
        notes = []
        with state_lock.held(self._base.with_suffix(".lock"), "registry"):
            self._store.require_empty()
            # The database last: as long as it isn't there, the same restore can be begun again.
            for blob, versions in sorted(_contents(copy).items()):
                try:
                    copy_blob(place.artifacts, self._blobs, blob)
                except FileNotFoundError as error:
                    notes.append(_lost(blob, versions, error))
            self._store.load(copy, _forget_changes)
        return notes


def _place(settings: StoreSettings, file: Path) -> tuple[Path | None, Target | None]:
    """SQLite's file (unless the settings name another, this one), or else Postgres's database. SettingsError."""
    text = settings.store_url
    if not text:
        return file, None
    target = postgres.target(text, settings.store_password_file, "registry")
    if target is not None:
        return None, target
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError:
        url = sa.URL.create("none")
    if url.get_backend_name() == "sqlite" and url.database:
        return Path(url.database).absolute(), None
    raise SettingsError(
        f"INFERPLANE_STORE_URL={text!r}: allowed: sqlite:///path or postgresql://user@host:port/database"
    )


def _contents(copy: Path) -> dict[BlobId, list[str]]:
    """Which versions each content is of. Versions under way have theirs sent again."""
    found: dict[BlobId, list[str]] = {}
    with opened(copy) as connection:
        wanted = (
            sa.select(blob_uses.c.sha256, blob_uses.c.size_bytes, blob_uses.c.version)
            .join(resources, resources.c.name == blob_uses.c.version)
            .where(resources.c.state == VersionState.READY.value)
            .order_by(blob_uses.c.version)
        )
        for sha256, size_bytes, version in connection.execute(wanted):
            found.setdefault(BlobId(sha256, size_bytes), []).append(version)
    return found


def _forget_changes(connection: sa.Connection) -> None:
    """No reader of the store that was lost may resume here: its revisions mean something else from now on."""
    now = time.time_ns() // 1000
    connection.execute(changes.delete())
    connection.execute(log_bounds.delete())
    connection.execute(log_bounds.insert().values(id=1, oldest=now, revision=now, epoch=now))


def _lost(blob: BlobId, versions: Sequence[str], error: Exception) -> str:
    return f"content {blob.sha256} of {', '.join(versions)} is lost: {error}"


def main() -> int:
    """Run the program."""
    return run("registry", lambda: RegistryPart(load(StoreSettings)), sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
