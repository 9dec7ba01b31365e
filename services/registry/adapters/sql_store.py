"""The store in an SQL database through SQLAlchemy Core: a SQLite file in WAL mode, or Postgres."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.adapters import sql_log
from services.registry.adapters.change_log import KEPT_CHANGES
from services.registry.adapters.sql_database import SqlDatabase, SqliteDatabase
from services.registry.adapters.sql_log import Bounds
from services.registry.adapters.sql_view import SqlTransaction, SqlView
from services.registry.domain.catalog import ChangeSet, ResourceKind
from services.registry.domain.standby import (
    abandoned_error,
    standby_error,
    superseded_error,
)
from services.registry.ports.store import Transaction, View
from services.rpc.completion import to_completion
from services.rpc.pulse import Pulse
from services.rpc.sqlite import open_engine

if TYPE_CHECKING:
    from services.rpc.postgres import Target

T = TypeVar("T")


class SqlStore:
    """A Store that one process at a time writes: the one that took over last.

    A file is guarded by `state_lock`. On Postgres each transaction of the one that took over sees whether it
    still is the one, so a process that was frozen or cut off for a while can't write, nor act on what it reads.
    """

    def __init__(self, database: SqlDatabase, first_revision: int, kept_changes: int) -> None:
        """Assign only. The store can be read; `take_over` makes it this process's to write.

        Args:
            database: the database.
            first_revision: where revisions begin if the database is new (see `change_log`).
            kept_changes: how many changes can be resumed from, at least.
        """
        self._database = database
        self._first_revision = first_revision
        self._kept = kept_changes
        self._writing = asyncio.Lock()
        self._pulse = Pulse(0)
        self._epoch: int | None = None
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._abandoned: set[asyncio.Future[Any]] = set()  # work that nobody waits for any more
        self.superseded = asyncio.Event()  # another process took over

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, first_revision: int, kept_changes: int = KEPT_CHANGES
    ) -> AsyncIterator["SqlStore"]:
        """Open or make the database file and bring its schema up to date."""
        store = cls(SqliteDatabase(open_engine(path)), first_revision, kept_changes)
        async with store._opened():
            await store.take_over()
            yield store

    @classmethod
    @asynccontextmanager
    async def on_postgres(
        cls, target: "Target", *, first_revision: int, kept_changes: int = KEPT_CHANGES
    ) -> AsyncIterator["SqlStore"]:
        """A store that has taken nothing over yet, and has no connection before it is used."""
        # The driver takes its time to import; who needs none begins at once.
        from services.registry.adapters.postgres_database import PostgresDatabase

        store = cls(PostgresDatabase(target), first_revision, kept_changes)
        async with store._opened():
            yield store

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.close()
            await self._database.dispose()

    async def take_over(self) -> None:
        """Bring the schema up to date and be the one that writes; whoever was it before is it no more."""
        with self._database.translated():
            await self._database.migrate()
            bounds = await self._database.write(
                lambda connection: sql_log.take_over(connection, self._first_revision), _unknown
            )
        self._epoch = bounds.epoch
        self._hear(bounds.revision)

    async def leads(self) -> bool:
        """Whether this process still is the one that took over last."""
        with self._database.translated():
            bounds = await self._database.read(sql_log.bounds)
        return bounds.epoch == self._epoch

    async def follow(self) -> None:
        """Hear of what other processes write, until cancelled; return if there are none."""
        await self._database.follow(self._look)

    async def _look(self, told: str | None) -> None:
        if told is not None and told.isdecimal():
            self._hear(int(told))
            return
        with self._database.translated():
            self._hear(await self._database.read(sql_log.newest))

    def _hear(self, revision: int) -> None:
        if revision > self._pulse.value:
            self._pulse.tell(revision)

    @property
    def revision(self) -> int:
        return self._pulse.value

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        return await self._answered(self._read(lambda connection: work(SqlView(connection))))

    async def _read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        async def checked(connection: AsyncConnection) -> T:
            if self._epoch is not None:
                self._check(await sql_log.bounds(connection))
            return await work(connection)

        with self._database.translated():
            return await self._database.read(checked)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._answered(self._write(work))

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        revision = 0  # of the last attempt; 0: it changed nothing

        async def attempt(connection: AsyncConnection) -> T:
            nonlocal revision
            revision = 0
            bounds = await sql_log.bounds(connection)
            self._check(bounds)
            transaction = SqlTransaction(connection, bounds.revision + 1)
            result = await work(transaction)
            if transaction.changed:
                revision = bounds.revision + 1
                await sql_log.append(connection, revision, transaction.changed)
                await sql_log.compact(connection, revision, self._kept)
                await self._database.tell(connection, revision)
            return result

        async def outcome(connection: AsyncConnection) -> bool | None:
            # In an epoch one process writes, one after another: a revision that is there is ours.
            bounds = await sql_log.bounds(connection)
            return bounds.revision >= revision if bounds.epoch == self._epoch else None

        async with self._writing:
            with self._database.translated():
                result = await self._database.write(attempt, outcome)
            self._hear(revision)
            return result

    def _check(self, bounds: Bounds) -> None:
        if bounds.epoch == self._epoch:
            return
        if self._epoch is None:
            raise standby_error()
        self.superseded.set()
        raise superseded_error()

    async def snapshot(self, kinds: Collection[ResourceKind]) -> ChangeSet:
        return await self._answered(self._read(lambda c: sql_log.snapshot(c, kinds)))

    async def changes(self, after: int, kinds: Collection[ResourceKind]) -> ChangeSet:
        return await self._answered(self._read(lambda c: sql_log.changes_after(c, after, kinds)))

    async def _answered(self, work: Coroutine[None, None, T]) -> T:
        """The work's result; UnavailableError if it has none when this process's turn ends."""
        working = asyncio.ensure_future(to_completion(work))
        ends: set[asyncio.Future[Any]] = {working, self._turn}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await asyncio.wait([working])
            raise
        if not working.done():
            self._abandoned.add(working)
            working.add_done_callback(self._forget)
            raise abandoned_error()
        return working.result()

    def _forget(self, work: asyncio.Future[Any]) -> None:
        self._abandoned.discard(work)
        if not work.cancelled():
            work.exception()  # nobody is left to be told

    def end_turn(self) -> None:
        """Keep nobody waiting for a database that may not answer; what was asked of it may yet be done."""
        if not self._turn.done():
            self._turn.set_result(None)

    async def wait_beyond(self, revision: int) -> int:
        return await self._pulse.wait_beyond(revision)

    def close(self) -> None:
        """End all waiting."""
        self._pulse.close()


async def _unknown(_connection: AsyncConnection) -> bool | None:
    return None
