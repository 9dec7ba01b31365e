"""What a registry keeps: the store, contents of files, and whether they are this process's to serve."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from services.registry.adapters.disk_blob_store import DiskBlobStore
from services.registry.adapters.memory_store import MemoryStore
from services.registry.adapters.sql_store import SqlStore
from services.registry.ports.tenure import SoleTenure, Tenure
from services.registry.settings import RegistrySettings
from services.rpc import state_folder, state_lock
from services.rpc.errors import FailedPreconditionError
from services.rpc.settings import SettingsError

_LONGEST_DATABASE_PATH = 504  # bytes; SQLite takes 512 with the suffix of its journal


def database_path(settings: RegistrySettings) -> Path | None:
    """The database file; None for the store in memory. SettingsError if the setting says neither."""
    url = settings.store_url
    if url == "memory:":
        return None
    if not url:
        return settings.state_dir.absolute() / "registry" / "registry.db"
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        parsed = None
    if parsed is None or parsed.drivername != "sqlite" or not parsed.database:
        raise not_a_store(url)
    return Path(parsed.database).absolute()


def not_a_store(url: str) -> SettingsError:
    """The setting names nothing that a store can be in."""
    return SettingsError(
        f"INFERPLANE_STORE_URL={url!r}: allowed: memory:, sqlite:///path of the database or"
        " postgresql://user@host:port/database"
    )


def _prepare_folder(path: Path) -> None:
    """Make the folder of a store's files; FailedPreconditionError if the store can't lie there."""
    length = len(os.fsencode(path))
    if length > _LONGEST_DATABASE_PATH:
        raise FailedPreconditionError(
            f"the database {path} has a path of {length} bytes; allowed: at most"
            f" {_LONGEST_DATABASE_PATH}; set a shorter INFERPLANE_STATE_DIR or INFERPLANE_STORE_URL"
        )
    state_folder.prepare(path.parent, "INFERPLANE_STATE_DIR (or INFERPLANE_STORE_URL)")


@dataclass(frozen=True, slots=True)
class State:
    """What is kept, and whether it is this process's to serve."""

    store: SqlStore | MemoryStore
    blobs: DiskBlobStore
    tenure: Tenure


def _beside(base: Path) -> tuple[DiskBlobStore, Path]:
    """Contents and lock file beside the database: `x.db`, `x.blobs/`, `x.lock`."""
    return DiskBlobStore(base.with_suffix(".blobs")), base.with_suffix(".lock")


@asynccontextmanager
async def open_state(settings: RegistrySettings) -> AsyncIterator[State]:
    """The store and its blobs; on Postgres another process may be serving them, and nothing is touched yet."""
    opened = _on_postgres if settings.store_url.startswith("postgres") else _alone
    async with opened(settings) as state:
        yield state


@asynccontextmanager
async def _alone(settings: RegistrySettings) -> AsyncIterator[State]:
    path = database_path(settings)
    base = path or settings.state_dir.absolute() / "registry" / "memory.db"
    _prepare_folder(base)
    blobs, lock = _beside(base)
    first_revision = time.time_ns() // 1000
    with state_lock.held(lock, "registry"):
        await asyncio.to_thread(blobs.prepare)
        if path is None:
            with contextlib.closing(MemoryStore(first_revision=first_revision)) as memory:
                yield State(memory, blobs, SoleTenure())
        else:
            async with SqlStore.open(path, first_revision=first_revision) as store:
                yield State(store, blobs, SoleTenure())


@asynccontextmanager
async def _on_postgres(settings: RegistrySettings) -> AsyncIterator[State]:
    # The driver takes its time to import; who needs none begins at once.
    from services.registry.adapters.postgres_tenure import PostgresTenure
    from services.rpc import postgres

    target = postgres.target(settings.store_url, settings.store_password_file, "registry")
    if target is None:
        raise not_a_store(settings.store_url)
    base = settings.state_dir.absolute() / "registry" / "registry.db"
    _prepare_folder(base)
    blobs, lock = _beside(base)
    async with SqlStore.on_postgres(target, first_revision=time.time_ns() // 1000) as store:
        tenure = PostgresTenure(target, store, blobs, lock, settings.takeover_seconds)
        yield State(store, blobs, tenure)
