"""The acts on backups: create, verify, restore."""

import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from services.cli.adapters import mesh_secrets
from services.cli.adapters.backup_parts import SERVICES, BackupParts
from services.cli.adapters.backup_repository import (
    MANIFEST,
    SECRETS,
    Backup,
    BackupRepository,
    digest_of,
)
from services.cli.adapters.release import version
from services.cli.adapters.state_directory import StateDirectory
from services.cli.domain.backup_manifest import FORMAT, BackupFile, Manifest, backup_id
from services.cli.ports.report import Report
from services.rpc.errors import DataLossError, FailedPreconditionError

_MOST_TOLD = 5  # problems in one message
_MESH = "mesh"  # whose state directory has what belongs to no service


def create(
    repository: BackupRepository, parts: BackupParts, report: Report, *, secrets: bool
) -> Backup:
    """Save everything, while it is in use or not."""
    stores = parts.stores
    stores.check()
    repository.prepare()
    with repository.held(alone=True), repository.new_folder() as folder:
        begin = _now()
        if secrets:
            (folder / SECRETS).mkdir(mode=0o700)
            mesh_secrets.save(stores.state_of(_MESH), folder / SECRETS)
        told = {}
        for service in SERVICES:
            report.say(f"saving {service}")
            told[service] = parts.run(service, "create", folder)
        manifest = Manifest(
            format=FORMAT,
            release=version(),
            begin_time=begin,
            end_time=_now(),
            state_dir=str(stores.state_of(_MESH)),
            files=_files(folder),
            parts=told,
        )
        return repository.seal(folder, manifest)


def verify(repository: BackupRepository, backup: Backup, parts: BackupParts) -> list[str]:
    """Read everything again and compute what can be computed; all that is wrong."""
    with repository.held(alone=False):
        problems = _file_problems(backup)
        if problems:  # what is in files that aren't ours means nothing
            return problems
        for service in SERVICES:
            problems += parts.run(service, "verify", backup.folder)
        return problems


@dataclass(frozen=True, slots=True)
class RestoreOrder:
    """What is to be restored, and where."""

    backup: Backup
    parts: BackupParts
    damaged: bool  # also if something is wrong with it


def restore(repository: BackupRepository, order: RestoreOrder, report: Report) -> list[str]:
    """Put a backup into empty places; what the operator should know. Nothing is changed if it can't be."""
    backup, parts = order.backup, order.parts
    parts.stores.check()
    manifest = backup.manifest
    if manifest.format > FORMAT:
        raise FailedPreconditionError(
            f"backup {backup.id} was made by release {manifest.release}; restore it by that one or a newer one",
            reason="BACKUP_TOO_NEW",
            metadata={"backup": backup.id, "release": manifest.release},
        )
    own = parts.stores.state_of(_MESH)
    _require_idle(own)
    for service in SERVICES:
        parts.run(service, "require-empty", backup.folder)
    mesh_secrets.require_same(backup.folder / SECRETS, own)
    report.say(f"verifying {backup.id}")
    notes = verify(repository, backup, parts)
    if notes and not order.damaged:
        raise DataLossError(
            f"backup {backup.id} is damaged, nothing was restored: {'; '.join(notes[:_MOST_TOLD])}."
            " What is whole of it comes with: --damaged",
            reason="BACKUP_DAMAGED",
            metadata={"backup": backup.id, "problems": str(len(notes))},
        )
    with repository.held(alone=False):
        for service in SERVICES:
            report.say(f"restoring {service}")
            notes += parts.run(service, "restore", backup.folder)
        mesh_secrets.restore(
            backup.folder / SECRETS, own, manifest.state_dir, authority=not parts.stores.are_apart
        )
    return notes


def prune(repository: BackupRepository, keep: int, say: Callable[[str], None]) -> tuple[int, int]:
    """Remove all but the newest; how many were removed, and how many bytes are free now."""
    repository.require()
    with repository.held(alone=True):
        there = repository.backups()
        gone = there[: max(0, len(there) - keep)]
        before = repository.used_bytes(there)
        for backup in gone:
            say(f"removing {backup.id}")
        repository.remove(gone)
        return len(gone), before - repository.used_bytes(there[len(gone) :])


def _require_idle(state: Path) -> None:
    directory = StateDirectory(state)
    if directory.is_held():
        raise FailedPreconditionError(
            f"a mesh runs on {state}; stop it first: inferplane down",
            reason="ALREADY_RUNNING",
            metadata={"state_dir": str(state)},
        )


def _files(folder: Path) -> dict[str, BackupFile]:
    return {
        str(path.relative_to(folder)): BackupFile(
            digest_of(path), path.stat().st_size, path.relative_to(folder).parts[0] == SECRETS
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _file_problems(backup: Backup) -> list[str]:
    problems = []
    named = backup_id((backup.folder / MANIFEST).read_bytes())
    if named != backup.id:
        problems.append(f"{MANIFEST} was changed: it is that of {named}")
    there = {**_files(backup.folder)}
    there.pop(MANIFEST, None)
    for path in sorted({*there, *backup.manifest.files}):
        told, found = backup.manifest.files.get(path), there.get(path)
        if found is None:
            problems.append(f"{path} is missing")
        elif told is None:
            problems.append(f"{path} is no part of the backup")
        elif told != found:
            problems.append(f"{path} was changed: it hashes to {found.sha256}")
        elif told.secret and stat.S_IMODE((backup.folder / path).stat().st_mode) & 0o077:
            problems.append(f"{path} is a secret that others may read; make it 0600, and rotate it")
    return problems


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
