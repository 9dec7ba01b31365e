"""Metering's database, which all its areas share, with one writer at a time: a SQLite file, or Postgres."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy import Connection, MetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.metering.adapters.news import Follower, forget, newest
from services.rpc import schema, sqlite
from services.rpc.completion import to_completion
from services.rpc.errors import FailedPreconditionError
from services.rpc.sqlite import open_engine, read_transaction, write_transaction

if TYPE_CHECKING:  # Postgres's driver takes its time to import; who has a file begins without it
    from services.metering.adapters.shared_database import SharedDatabase
    from services.rpc.postgres import Target

T = TypeVar("T")

_log = structlog.get_logger(__name__)

metadata = MetaData()  # of the tables of all areas

_MIGRATIONS = Path(__file__).with_name("migrations")
_SERVICE = "metering"
_OF_THE_REGISTRY = {"blob_uses", "log_bounds"}  # tables that only it has
_SILENT_SECONDS = (
    10.0  # without the database after which this process doesn't serve; it is looked at each second
)


def migrate(connection: Connection, to: str = "head") -> None:
    """Bring the database to a migration, in the connection's transaction."""
    tables = set(sa.inspect(connection).get_table_names())
    if tables & _OF_THE_REGISTRY:
        raise FailedPreconditionError(
            f"the database {connection.engine.url.database} is the registry's; metering needs one of its own in"
            " INFERPLANE_STORE_URL",
            reason="DATABASE_OF_ANOTHER",
        )
    schema.migrate(connection, _MIGRATIONS, to)


class Database:
    """Transactions on one database.

    Any number of callers at once. Writes run one after another; one that returned is durable, one that
    raised changed nothing, one that has begun ends even if its caller is cancelled. Reads see one state
    and never wait for a writer. Foreign errors come out as ResourceExhaustedError (disk full),
    UnavailableError (locked, or not to be reached) or InternalError.

    A SQLite file is this process's alone (see `state_lock`). Postgres is shared by processes: writes run one
    after another over all of them, by an advisory lock that each takes first. It is released only after the commit
    can be seen, and each statement sees what is committed when it begins (READ COMMITTED), so a write sees all
    before it and none beside it: the ledger's chain of hashes, its numbers and its balances need no more. On Postgres
    work may be run again from its beginning, if the connection was lost before anything was committed.
    """

    def __init__(self, engine: AsyncEngine, shared: "SharedDatabase | None" = None) -> None:
        self._engine = engine
        self._shared = shared
        self._writing = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, store: "Path | Target") -> AsyncIterator["Database"]:
        """Open or make the database and bring its schema up to date; of processes that start at once, one does."""
        opened = cls._open_file(store) if isinstance(store, Path) else cls._open_shared(store)
        async with opened as database:
            yield database

    @classmethod
    @asynccontextmanager
    async def _open_file(cls, path: Path) -> AsyncIterator["Database"]:
        engine = open_engine(path)
        try:
            with sqlite.translated(_SERVICE):
                async with write_transaction(engine) as connection:
                    await connection.run_sync(migrate)
            yield cls(engine)
        finally:
            await engine.dispose()

    @classmethod
    @asynccontextmanager
    async def _open_shared(cls, target: "Target") -> AsyncIterator["Database"]:
        from services.metering.adapters import shared_database

        async with shared_database.opened(target, migrate) as shared:
            yield cls(shared.engine, shared)

    @property
    def process(self) -> int | None:
        """This process's number among all that ever shared the database; None: it is not shared."""
        return self._shared.news.process if self._shared is not None else None

    def follow(self, topic: str, follower: Follower) -> None:
        """Have a follower take over what other processes write: before each write here, and soon after theirs."""
        if self._shared is not None:
            self._shared.news.follow(topic, follower)

    async def newest_news(self) -> int:
        """The revision of the last change that processes told each other; 0 if they are not several."""
        if self._shared is None:
            return 0
        return await self.read(lambda c: c.run_sync(newest))

    async def forget_news(self, until: int) -> int:
        """Forget some of the changes up to a revision; how many, 0: there are no more."""
        if self._shared is None:
            return 0
        return await self.write(lambda c: c.run_sync(forget, until))

    async def left_behind(self) -> None:
        """Return if changes were forgotten that this process has not seen: what it knows is wrong from then on."""
        await (asyncio.Event() if self._shared is None else self._shared.news.missed).wait()

    async def run(
        self, lost: Callable[[], Awaitable[None]], found: Callable[[], Awaitable[None]]
    ) -> None:
        """Hear of other processes' writes until cancelled; may return if there are none.

        Args:
            lost: called when the database was not reached for a while, so that what is known here may be old.
            found: called when it was reached again and everything was taken over.
        """
        if self._shared is None:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._shared.listen(self._heard))
            tasks.create_task(self._watch(self._shared, lost, found))

    @staticmethod
    async def _watch(
        shared: "SharedDatabase",
        lost: Callable[[], Awaitable[None]],
        found: Callable[[], Awaitable[None]],
    ) -> None:
        was_reached = True
        while True:
            shared.heard.clear()
            try:
                async with asyncio.timeout(_SILENT_SECONDS):
                    await shared.heard.wait()
                is_reached = True
            except TimeoutError:
                is_reached = False
            if is_reached is not was_reached:
                _log.warning("database reached again" if is_reached else "database not reached")
                await (found if is_reached else lost)()
            was_reached = is_reached

    async def _heard(self, _: str | None) -> None:
        await self.catch_up()

    async def catch_up(self) -> None:
        """Take over all that other processes have written until now."""
        if self._shared is not None:
            await to_completion(self._catch_up(self._shared))

    async def _catch_up(self, shared: "SharedDatabase") -> None:
        news = shared.news
        async with (
            self._writing
        ):  # so that what it reads is not older than what a write here has told
            await shared.read(lambda c: c.run_sync(news.catch_up))
            shared.heard.set()

    @asynccontextmanager
    async def alone(self, purpose: str) -> AsyncIterator[None]:
        """A block that no other process is in meanwhile, as far as its connection lives."""
        if self._shared is None:
            yield
            return
        async with self._shared.alone(purpose):
            yield

    async def read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run `work` on one consistent state."""
        return await to_completion(self._read(work))

    async def _read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        if self._shared is not None:
            return await self._shared.read(work)
        with sqlite.translated(_SERVICE):
            async with read_transaction(self._engine) as connection:
                return await work(connection)

    async def read_apart(self, work: Callable[[sa.Connection], T]) -> T:
        """Run long `work` on one consistent state in a thread, on a connection of its own."""
        return await asyncio.to_thread(self._read_apart, work)

    def _read_apart(self, work: Callable[[sa.Connection], T]) -> T:
        if self._shared is not None:
            return self._shared.read_apart(work)
        with sqlite.translated(_SERVICE):
            return _in_file(str(self._engine.url.database), work)

    async def write(
        self,
        work: Callable[[AsyncConnection], Awaitable[T]],
        committed: Callable[[T], None] | None = None,
    ) -> T:
        """Run `work` and commit what it changed, all or nothing.

        Args:
            work: gets the connection, in a transaction that alone may write.
            committed: is called with its result once that is durable and before the next write of this process
                begins, so that what follows from writes is told in their order.
        """
        return await to_completion(self._write(work, committed))

    async def _write(
        self,
        work: Callable[[AsyncConnection], Awaitable[T]],
        committed: Callable[[T], None] | None,
    ) -> T:
        async with self._writing:
            if self._shared is not None:
                result = await self._write_shared(self._shared, work)
                self._shared.heard.set()
            else:
                with sqlite.translated(_SERVICE):
                    async with write_transaction(self._engine) as connection:
                        result = await work(connection)
            if committed is not None:
                committed(result)
            return result

    @staticmethod
    async def _write_shared(
        shared: "SharedDatabase", work: Callable[[AsyncConnection], Awaitable[T]]
    ) -> T:
        async def signed(connection: AsyncConnection) -> T:
            await connection.run_sync(shared.news.sign)
            return await work(connection)

        return await shared.write(signed)


def _in_file(path: str, work: Callable[[sa.Connection], T]) -> T:
    engine = sa.create_engine(sa.URL.create("sqlite", database=path))
    try:
        with engine.connect() as plain:
            connection = plain.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("PRAGMA query_only = ON")
            connection.exec_driver_sql("BEGIN")  # so that all of it sees one state
            try:
                return work(connection)
            finally:
                connection.exec_driver_sql("ROLLBACK")
    finally:
        engine.dispose()
