"""The database under the SQL store on Postgres: a server that several processes use."""

from contextlib import AbstractContextManager
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.adapters.schema import migrate
from services.registry.adapters.sql_database import SERVICE, Heard, Outcome, Work
from services.rpc import postgres
from services.rpc.postgres import Target
from services.rpc.postgres_listener import Listener

T = TypeVar("T")

_CHANNEL = "inferplane_registry"  # told the revision of each commit


class PostgresDatabase:
    """A server that several processes use; one of them writes at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._engine = postgres.open_engine(target)
        self._lock = postgres.lock_key(SERVICE, "write")

    def translated(self) -> AbstractContextManager[None]:
        return postgres.translated(SERVICE)

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

    async def follow(self, heard: Heard) -> None:
        await Listener(self._target, _CHANNEL, heard).run()

    async def dispose(self) -> None:
        await self._engine.dispose()
