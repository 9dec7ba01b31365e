"""The store in an SQL database: SQLite through SQLAlchemy Core, in WAL mode."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.registry.adapters import sql_log
from services.registry.adapters.change_log import KEPT_CHANGES
from services.registry.adapters.schema import migrate
from services.registry.adapters.sql_view import SqlTransaction, SqlView
from services.registry.domain.catalog import ChangeSet, ResourceKind
from services.registry.ports.store import Transaction, View
from services.rpc.completion import to_completion
from services.rpc.pulse import Pulse
from services.rpc.sqlite import open_engine, read_transaction, translated, write_transaction

T = TypeVar("T")


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
        engine = open_engine(path)
        try:
            with translated("registry"):
                async with write_transaction(engine) as connection:
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
        with translated("registry"):
            async with read_transaction(self._engine) as connection:
                return await work(connection)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await to_completion(self._write(work))

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with self._writing:
            revision = self.revision + 1
            with translated("registry"):
                async with write_transaction(self._engine) as connection:
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
