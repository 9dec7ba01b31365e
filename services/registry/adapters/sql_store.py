"""The store in an SQL database: SQLite through SQLAlchemy Core, in WAL mode."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from services.registry.adapters import sql_log
from services.registry.adapters.change_log import KEPT_CHANGES
from services.registry.adapters.schema import migrate
from services.registry.adapters.sql_view import SqlTransaction, SqlView
from services.registry.domain.catalog import ChangeSet, ResourceKind
from services.registry.drivers.completion import to_completion
from services.registry.drivers.pulse import Pulse
from services.registry.ports.store import Transaction, View
from services.rpc.errors import InternalError, ResourceExhaustedError, UnavailableError

T = TypeVar("T")

_BUSY_MS = 5000


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the database's errors into ours."""
    try:
        yield
    except OperationalError as error:
        text = str(error.orig)
        if "full" in text:
            raise ResourceExhaustedError(
                "the disk with the registry's database is full; nothing was changed",
                reason="DISK_FULL",
            ) from error
        if "locked" in text or "busy" in text:
            raise UnavailableError(
                "the registry's database is locked by another program; try again",
                reason="DATABASE_LOCKED",
                retry_after=1.0,
            ) from error
        raise InternalError(f"the registry's database failed: {text}") from error
    except DatabaseError as error:
        raise InternalError(f"the registry's database failed: {error.orig}") from error
    except SQLAlchemyError as error:
        raise InternalError(f"the registry's database failed: {error}") from error


def _engine(path: Path) -> AsyncEngine:
    engine = create_async_engine(sa.URL.create("sqlite+aiosqlite", database=str(path)))

    @event.listens_for(engine.sync_engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        # The driver must not begin transactions on its own: it would do so late, and not for DDL.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",  # a commit that was acknowledged survives a power cut
            f"busy_timeout={_BUSY_MS}",
            "foreign_keys=ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def began(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


class SqlStore:
    """A Store in one database file, which this process alone may write (see `state_lock`)."""

    def __init__(self, engine: AsyncEngine, revision: int, kept_changes: int) -> None:
        self._engine = engine
        self._kept = kept_changes
        self._writing = asyncio.Lock()
        self._pulse = Pulse(revision)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, first_revision: int, kept_changes: int = KEPT_CHANGES
    ) -> AsyncIterator["SqlStore"]:
        """Open or make the database and bring its schema up to date.

        Args:
            path: the database file.
            first_revision: where revisions begin if the database is new (see `change_log`).
            kept_changes: how many changes can be resumed from, at least.
        """
        engine = _engine(path)
        try:
            with _translated():
                async with _write_transaction(engine) as connection:
                    await connection.run_sync(migrate)
                    revision = await sql_log.begin(connection, first_revision)
            store = cls(engine, revision, kept_changes)
            try:
                yield store
            finally:
                store.close()
        finally:
            await engine.dispose()

    @property
    def revision(self) -> int:
        return self._pulse.value

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        return await to_completion(self._read(lambda connection: work(SqlView(connection))))

    async def _read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        with _translated():
            async with self._engine.connect() as connection, connection.begin():
                return await work(connection)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await to_completion(self._write(work))

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with self._writing:
            revision = self.revision + 1
            with _translated():
                async with _write_transaction(self._engine) as connection:
                    transaction = SqlTransaction(connection, revision)
                    result = await work(transaction)
                    if transaction.changed:
                        await sql_log.append(connection, revision, transaction.changed)
                        await sql_log.compact(connection, revision, self._kept)
            if transaction.changed:
                self._pulse.tell(revision)
            return result

    async def snapshot(self, kinds: Collection[ResourceKind]) -> ChangeSet:
        return await to_completion(self._read(lambda c: sql_log.snapshot(c, kinds)))

    async def changes(self, after: int, kinds: Collection[ResourceKind]) -> ChangeSet:
        return await to_completion(self._read(lambda c: sql_log.changes_after(c, after, kinds)))

    async def wait_beyond(self, revision: int) -> int:
        return await self._pulse.wait_beyond(revision)

    def close(self) -> None:
        """End all waiting."""
        self._pulse.close()


@asynccontextmanager
async def _write_transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    async with engine.connect() as plain:
        connection = await plain.execution_options(writes=True)
        async with connection.begin():
            yield connection
