"""Metering's database: one SQLite file that all its areas share, with one writer at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, MetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.rpc import schema
from services.rpc.completion import to_completion
from services.rpc.sqlite import open_engine, read_transaction, translated, write_transaction

T = TypeVar("T")

metadata = MetaData()  # of the tables of all areas

_MIGRATIONS = Path(__file__).with_name("migrations")


def migrate(connection: Connection, to: str = "head") -> None:
    """Bring the database to a migration, in the connection's transaction."""
    schema.migrate(connection, _MIGRATIONS, to)


class Database:
    """Transactions on the one file, which this process alone may write (see `state_lock`).

    Any number of callers at once. Writes run one after another; one that returned is durable, one that
    raised changed nothing, one that has begun ends even if its caller is cancelled. Reads see one state
    and never wait for a writer. Foreign errors come out as ResourceExhaustedError (disk full),
    UnavailableError (locked) or InternalError. Only the engine knows that this is SQLite.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._writing = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator["Database"]:
        """Open or make the database and bring its schema up to date."""
        engine = open_engine(path)
        try:
            with translated("metering"):
                async with write_transaction(engine) as connection:
                    await connection.run_sync(migrate)
            yield cls(engine)
        finally:
            await engine.dispose()

    async def read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run `work` on one consistent state."""
        return await to_completion(self._read(work))

    async def _read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        with translated("metering"):
            async with read_transaction(self._engine) as connection:
                return await work(connection)

    async def write(
        self,
        work: Callable[[AsyncConnection], Awaitable[T]],
        committed: Callable[[T], None] | None = None,
    ) -> T:
        """Run `work` and commit what it changed, all or nothing.

        Args:
            work: gets the connection, in a transaction that alone may write.
            committed: is called with its result once that is durable and before the next write begins, so
                that what follows from writes is told in their order.
        """
        return await to_completion(self._write(work, committed))

    async def _write(
        self,
        work: Callable[[AsyncConnection], Awaitable[T]],
        committed: Callable[[T], None] | None,
    ) -> T:
        async with self._writing:
            with translated("metering"):
                async with write_transaction(self._engine) as connection:
                    result = await work(connection)
            if committed is not None:
                committed(result)
            return result
