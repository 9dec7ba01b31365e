"""Metering's part of a backup: projects, keys, budgets, usage, the ledger, and the secrets that go with them.

What the workers have not sent yet is in their outboxes, which no backup has: they send it once metering is there again.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from services.metering.adapters import (
    budget_tables,
    identity_tables,
    ledger_tables,
    sql_verify,
)
from services.metering.adapters.admin_token_file import AdminTokenFile
from services.metering.adapters.database import metadata, migrate
from services.metering.adapters.signing_files import SigningFiles
from services.metering.domain.ledger import NO_HASH
from services.metering.domain.verification import Verification
from services.rpc import postgres, state_lock
from services.rpc.backup_part import (
    BackupPart,
    BackupPlace,
    StoreSettings,
    require_same,
    run,
)
from services.rpc.database_copy import differing_counts, file_problems, opened, row_counts
from services.rpc.errors import FailedPreconditionError, InternalError
from services.rpc.secret_file import read_secret, sync_folder, write_secret
from services.rpc.settings import load
from services.rpc.store_copy import StoreCopy, schema_of_file

_DATABASE = "metering.db"
_SIGNING = "signing"
_ADMIN = "admin.key"
# Their tables are declared once they are imported.
_AREAS = (identity_tables, ledger_tables, budget_tables)
_MOST_LOOKS = 3  # at a metering whose signing key is rotated meanwhile


class MeteringPart:
    """A BackupPart."""

    def __init__(self, settings: StoreSettings) -> None:
        """Assign only."""
        self._state = settings.state_dir.absolute()
        self._folder = self._state / "metering"
        # What else a setting may say is the registry's, which has the same variable.
        target = postgres.target(settings.store_url, settings.store_password_file, "metering")
        self._store = StoreCopy(
            service="metering",
            file=self._folder / _DATABASE if target is None else None,
            target=target,
            lock="writes",
            metadata=metadata,
            migrate=migrate,
            telling=("projects", "ledger_entries", "budgets"),
            passing=("lease_holders", "metering_changes", "metering_folder", "metering_writers"),
        )

    def create(self, place: BackupPlace) -> Mapping[str, Any]:
        copy, secrets = place.folder / _DATABASE, place.secrets
        for _ in range(_MOST_LOOKS):
            copy.unlink(missing_ok=True)
            self._store.save(copy)
            kid = _current_key(copy)
            # Its private half is there before it is stored, and gone once another signs: then all is looked at again.
            if not secrets.is_dir() or kid is None or self._save_key(kid, secrets / _SIGNING):
                break
        if secrets.is_dir() and (token := read_secret(self._state / _ADMIN)) is not None:
            write_secret(secrets / _ADMIN, token)
        found = _verified(copy, 0, NO_HASH)
        return {
            "engine": self._store.engine,
            "schema": schema_of_file(copy),
            "rows": row_counts(copy),
            "ledger": {
                "entries": found.entries,
                "newest": found.head_number,
                "hash": found.head_hash.hex(),
                "problems": found.problem_count,
            },
            "damaged": _told(found),
            "gone": [],
        }

    def verify(self, place: BackupPlace, told: Mapping[str, Any]) -> Sequence[str]:
        copy = place.folder / _DATABASE
        problems = [f"{_DATABASE}: {problem}" for problem in file_problems(copy)]
        if problems:
            return problems
        problems += differing_counts(told["rows"], row_counts(copy))
        ledger = told["ledger"]
        found = _verified(copy, ledger["newest"], bytes.fromhex(ledger["hash"]))
        problems += _told(found)
        if found.entries != ledger["entries"]:
            problems.append(
                f"the ledger has {found.entries} entries, {ledger['entries']} were noted"
            )
        kept = place.secrets / _SIGNING
        for path in sorted(kept.glob("*.pem")):
            try:
                SigningFiles(kept).has(path.stem)
            except (InternalError, FailedPreconditionError) as error:
                problems.append(error.message)
        return problems

    def require_empty(self, place: BackupPlace) -> None:
        self._store.require_empty()
        for path in (self._state / _ADMIN, *self._folder.glob(f"{_SIGNING}/*.pem")):
            if path.exists():
                kept = _ADMIN if path.name == _ADMIN else f"{_SIGNING}/{path.name}"
                require_same(path, place.secrets / kept)

    def restore(self, place: BackupPlace) -> Sequence[str]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy, secrets = place.folder / _DATABASE, place.secrets
        notes = []
        with state_lock.held(self._folder / "metering.lock", "metering"):
            self.require_empty(place)
            kid = _current_key(copy)
            if kid is not None and not (secrets / _SIGNING / f"{kid}.pem").exists():
                notes.append(
                    "the backup has no signing key: metering makes another at its start; tokens stay good"
                )
            self._store.load(copy)
            self._put_secrets(secrets)
        return notes

    def _save_key(self, kid: str, folder: Path) -> bool:
        """Copy the private half of a signing key; False if there is none."""
        pem = read_secret(self._folder / _SIGNING / f"{kid}.pem")
        if pem is None:
            return False
        folder.mkdir(mode=0o700, exist_ok=True)
        write_secret(folder / f"{kid}.pem", pem)
        return True

    def _put_secrets(self, secrets: Path) -> None:
        """Signing keys and the first admin's token. Killed before: metering makes others at its start."""
        keys = sorted((secrets / _SIGNING).glob("*.pem"))
        if keys:
            place = self._folder / _SIGNING
            place.mkdir(mode=0o700, exist_ok=True)
            for key in keys:
                write_secret(place / key.name, key.read_bytes())
            sync_folder(self._folder)
        token = AdminTokenFile(secrets / _ADMIN).read()
        if token is not None:
            AdminTokenFile(self._state / _ADMIN).write(token)


def _current_key(copy: Path) -> str | None:
    """The key that signs."""
    keys = identity_tables.signing_keys
    with opened(copy) as connection:
        newest = (
            sa.select(keys.c.kid)
            .where(keys.c.retire_us.is_(None))
            .order_by(keys.c.create_us.desc())
            .limit(1)
        )
        kid = connection.scalar(newest)
        return None if kid is None else str(kid)


def _verified(copy: Path, number: int, known: bytes) -> Verification:
    with opened(copy) as connection:
        return sql_verify.verify(connection, number, known)


def _told(found: Verification) -> list[str]:
    return [
        f"ledger: {problem.reason} {problem.subject}: {problem.description}"
        for problem in found.problems
    ]


def _part() -> BackupPart:
    return MeteringPart(load(StoreSettings))


def main() -> int:
    """Run the program."""
    return run("metering", _part, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
