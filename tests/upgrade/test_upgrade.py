"""Databases of the first release, opened by this one; databases of a later one, refused."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from services.metering.adapters import budget_tables, identity_tables, ledger_tables, sql_verify
from services.metering.adapters.database import Database
from services.metering.backup import MeteringPart
from services.registry.adapters.sql_store import SqlStore
from services.registry.backup import RegistryPart
from services.registry.domain.catalog import ALL_KINDS
from services.rpc import postgres
from services.rpc.backup_part import BackupPlace, StoreSettings
from services.rpc.database_copy import file_problems, opened
from services.rpc.settings import environment_for_children, load
from tests.upgrade import released

_LATER = "9999"
_AREAS = (identity_tables, ledger_tables, budget_tables)  # declared once they are imported
# What restoring changes on purpose: nobody resumes where another store was.
_NEW_AT_RESTORE = {"log_bounds", "changes"}


async def _open(service: str, path: Path) -> None:
    """What the service does with its database when it starts."""
    if service == "registry":
        async with SqlStore.open(path, first_revision=1) as store:
            await store.snapshot(ALL_KINDS)  # every record can be read
    else:
        async with Database.open(path):
            pass


def _part(service: str, state: Path, url: str = "") -> RegistryPart | MeteringPart:
    settings = load(StoreSettings, state_dir=state, store_url=url, store_password_file=None)
    return RegistryPart(settings) if service == "registry" else MeteringPart(settings)


def _kept(rows: dict[str, list[str]], like: dict[str, list[str]]) -> dict[str, list[str]]:
    """Rows of the tables that a release had rows in."""
    return {table: rows[table] for table in like if table not in _NEW_AT_RESTORE and like[table]}


@pytest.mark.parametrize("service", ["registry", "metering"])
async def test_a_database_of_the_release_is_brought_up_to_date(
    service: str, tmp_path: Path
) -> None:
    """It has the same tables, indexes and triggers as a new one then, and all its rows."""
    old = released.write(service, tmp_path / "old.db")
    before = released.rows(old)
    await _open(service, old)
    await _open(service, tmp_path / "new.db")
    assert released.shape(old) == released.shape(tmp_path / "new.db")
    assert file_problems(old) == []
    assert _kept(released.rows(old), before) == _kept(before, before)


async def test_the_release_s_ledger_adds_up(tmp_path: Path) -> None:
    """Counted again by this release, to the hash that the old one had noted."""
    old = released.write("metering", tmp_path / "metering.db")
    await _open("metering", old)
    with opened(old) as connection:
        found = sql_verify.verify(connection, *released.LEDGER_HEAD)
    assert found.problems == []
    assert (found.entries, found.rows) == (9, 8)
    assert (found.head_number, found.head_hash) == released.LEDGER_HEAD


@pytest.mark.parametrize("service", ["registry", "metering"])
async def test_it_moves_to_postgres_and_back(
    service: str, tmp_path: Path, postgres_url: str
) -> None:
    """The release knew SQLite only: what it left is put into Postgres, copied from there, and has lost nothing."""
    folder, there, back = tmp_path / "backup", tmp_path / "there", tmp_path / "back"
    old = released.write(service, folder / f"{service}.db")
    before = released.rows(old)
    artifacts = tmp_path / "artifacts"
    _put_artifacts(old, artifacts)
    _part(service, there, postgres_url).restore(BackupPlace(folder, artifacts))
    back.mkdir()
    told = _part(service, there, postgres_url).create(BackupPlace(back, tmp_path / "more"))
    assert told["engine"] == "postgresql"
    assert told["damaged"] == []
    copy = back / f"{service}.db"
    assert _kept(released.rows(copy), before) == _kept(before, before)
    assert _part(service, there).verify(BackupPlace(back, tmp_path / "more"), told) == []


def _put_artifacts(database: Path, artifacts: Path) -> None:
    """The one model that the release's registry had."""
    with closing(sqlite3.connect(database)) as connection:
        if not connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'blob_uses'"
        ).fetchone():
            return
        (sha256,) = connection.execute("SELECT sha256 FROM blob_uses").fetchone()
    place = artifacts / "sha256" / sha256[:2] / sha256
    place.parent.mkdir(parents=True)
    place.write_bytes(Path(__file__).with_name("affine.onnx").read_bytes())


def _start(service: str, state: Path, url: str) -> subprocess.CompletedProcess[str]:
    """The service as a process that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", f"services.{service}"],
        env=environment_for_children(
            state_dir=str(state),
            store_url=url,
            metrics_address="",
            **{f"{service}_address": f"unix:{state}/s.sock"},
        ),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("service", ["registry", "metering"])
async def test_a_database_of_a_later_release_is_left_alone(service: str, tmp_path: Path) -> None:
    """The process ends at once with one line that says what to do, and has changed nothing."""
    path = tmp_path / service / f"{service}.db"
    path.parent.mkdir()
    await _open(service, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (_LATER,))
    before = released.rows(path)
    done = _start(service, tmp_path, "")
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith(f"{service}: ")]
    assert len(said) == 1
    assert f"schema {_LATER}" in said[0]
    assert "run the newer release" in said[0]
    assert released.rows(path) == before


def test_a_later_schema_in_postgres_is_refused_too(tmp_path: Path, postgres_url: str) -> None:
    """By each service, with the same words."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)")
        connection.execute("INSERT INTO alembic_version VALUES (%s)", (_LATER,))
    for service in ("registry", "metering"):
        found = postgres.target(postgres_url, None, service)
        assert found is not None
        done = _start(service, tmp_path, postgres_url)
        assert done.returncode == 1, done.stderr
        assert f"schema {_LATER}" in done.stderr
