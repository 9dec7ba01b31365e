"""The database under the SQL store: what it asks of one, and the one in a file."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.registry.adapters.schema import migrate
from services.rpc import sqlite

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]
# Whether what a transaction wrote is there; None: can't be told.
Outcome = Callable[[AsyncConnection], Awaitable[bool | None]]
# Given what another process told with its commit, or None: look at everything.
Heard = Callable[[str | None], Awaitable[None]]

SERVICE = "registry"


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

    async def follow(self, heard: Heard) -> None:
        """Hear of what other processes tell, until cancelled; return if there are none."""
        ...

    async def dispose(self) -> None:
        """Close all connections."""
        ...


class SqliteDatabase:
    """One file that this process alone writes."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    def translated(self) -> AbstractContextManager[None]:
        return sqlite.translated(SERVICE)

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

    async def follow(self, heard: Heard) -> None:
        del heard

    async def dispose(self) -> None:
        await self._engine.dispose()
