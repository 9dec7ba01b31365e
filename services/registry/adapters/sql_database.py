"""The database under the SQL store: what a transaction is on SQLite, and what it is on Postgres."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.registry.adapters.schema import migrate
from services.rpc import postgres, sqlite
from services.rpc.postgres import Outcome, Target
from services.rpc.postgres_listener import Heard, Listener

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]

_SERVICE = "registry"
_CHANNEL = "inferplane_registry"  # told the revision of each commit


class SqlDatabase(Protocol):
    """Transactions; their errors are SQLAlchemy's until `translated` makes them ours."""

    def translated(self) -> AbstractContextManager[None]:
        """Turns the database's errors into ours."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one consistent state."""
        ...

    async def write(self, work: Work[T], outcome: Outcome) -> T:
        """Run `work` alone and commit what it changed; it may be run again if nothing was committed.

        `outcome` tells afterwards whether it was, should the database not have said so.
        """
        ...

    async def migrate(self) -> None:
        """Bring the schema up to date."""
        ...

    async def tell(self, connection: AsyncConnection, revision: int) -> None:
        """With the commit, tell other processes of its revision."""
        ...

    async def dispose(self) -> None:
        """Close all connections."""
        ...


class SqliteDatabase:
    """One file that this process alone writes."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    def translated(self) -> AbstractContextManager[None]:
        return sqlite.translated(_SERVICE)

    async def read(self, work: Work[T]) -> T:
        async with sqlite.read_transaction(self._engine) as connection:
            return await work(connection)

    async def write(self, work: Work[T], outcome: Outcome) -> T:
        del outcome  # the file is on this machine: a commit answers
        async with sqlite.write_transaction(self._engine) as connection:
            return await work(connection)

    async def migrate(self) -> None:
        async with sqlite.write_transaction(self._engine) as connection:
            await connection.run_sync(migrate)

    async def tell(self, connection: AsyncConnection, revision: int) -> None:
        del connection, revision  # nobody else is there

    async def dispose(self) -> None:
        await self._engine.dispose()


class PostgresDatabase:
    """A server that several processes use; one of them writes at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._engine = postgres.open_engine(target)
        self._lock = postgres.lock_key(_SERVICE, "write")

    def translated(self) -> AbstractContextManager[None]:
        return postgres.translated(_SERVICE)

    async def read(self, work: Work[T]) -> T:
        return await postgres.read(self._engine, work)

    async def write(self, work: Work[T], outcome: Outcome) -> T:
        return await postgres.write(self._engine, work, self._lock, outcome)

    async def migrate(self) -> None:
        await postgres.migrated(self._engine, self._lock, migrate)

    async def tell(self, connection: AsyncConnection, revision: int) -> None:
        statement = "SELECT pg_notify(%(channel)s, %(revision)s)"
        values = {"channel": _CHANNEL, "revision": str(revision)}
        await connection.exec_driver_sql(statement, values)

    def listener(self, heard: Heard) -> Listener:
        """What hears of commits."""
        return Listener(self._target, _CHANNEL, heard)

    async def dispose(self) -> None:
        await self._engine.dispose()
