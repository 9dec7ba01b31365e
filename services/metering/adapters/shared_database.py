"""A Postgres that several metering processes share: what `Database` does there otherwise than in a file of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import sqlalchemy as sa
import structlog
import tenacity
from psycopg.types.numeric import IntLoader
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.metering.adapters.news import CHANNEL, News
from services.rpc import postgres
from services.rpc.errors import UnavailableError
from services.rpc.postgres import Target
from services.rpc.postgres_listener import Heard, Listener
from services.rpc.postgres_lock import SessionLock

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_LOCK_SECONDS = 15.0  # of silence after which another process may do what one was to do alone


class SharedDatabase:
    """Transactions on it, with its errors as ours, and news of what other processes write."""

    __slots__ = ("_target", "_writes", "engine", "heard", "news")

    def __init__(self, target: Target, engine: AsyncEngine, news: News) -> None:
        """Assign only.

        Args:
            target: the database.
            engine: of `postgres.open_engine`.
            news: of this process.
        """
        self._target = target
        self._writes = _writes(target)
        self.engine = engine
        self.news = news
        self.heard = asyncio.Event()  # that everything was taken over

    async def read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run `work` on one state; again, on a newer one, if the connection is lost."""
        with postgres.translated(self._target.service):
            return await postgres.read(self.engine, work)

    async def write(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run `work`, which signs the news, alone among all processes, and commit what it changed."""
        with postgres.translated(self._target.service):
            return await postgres.write(self.engine, work, self._writes, self.news.is_signed)

    def read_apart(self, work: Callable[[sa.Connection], T]) -> T:
        """Run long `work` on one state, on a connection of its own. Blocks."""
        with postgres.translated(self._target.service):
            return _read_apart(self._target, work)

    async def listen(self, heard: Heard) -> None:
        """Call `heard` soon after other processes wrote, and each second, until cancelled."""
        await Listener(self._target, CHANNEL, heard, every=1.0).run()

    def alone(self, purpose: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """A block that no other process is in meanwhile, as far as its connection lives."""
        key = postgres.lock_key(self._target.service, purpose)
        return SessionLock(self._target, key, ttl=_LOCK_SECONDS).held()


@asynccontextmanager
async def opened(
    target: Target, migrate: Callable[[sa.Connection], None]
) -> AsyncIterator[SharedDatabase]:
    """The database with its schema up to date; of processes that start at once, one brings it there."""
    engine = postgres.open_engine(target)
    _read_whole_numbers(engine.sync_engine)
    try:
        yield SharedDatabase(target, engine, await _begun(target, engine, migrate))
    finally:
        await engine.dispose()


def _writes(target: Target) -> int:
    """The lock that every write takes."""
    return postgres.lock_key(target.service, "writes")


async def _begun(
    target: Target, engine: AsyncEngine, migrate: Callable[[sa.Connection], None]
) -> News:
    """The schema brought up to date, once Postgres is there: all of a cluster may have been started at once."""
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(UnavailableError),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=2.0),
        before_sleep=lambda state: _log.warning(
            "waiting for the database", reason=str(state.outcome and state.outcome.exception())
        ),
    )

    async def begin() -> News:
        with postgres.translated(target.service):
            await postgres.migrated(engine, _writes(target), migrate)
            return await postgres.write(engine, News.begun, _writes(target))

    return await retrying(begin)


def _read_whole_numbers(engine: sa.Engine) -> None:
    """Sums of 64-bit numbers come as `numeric`, and all numbers here are whole."""

    @event.listens_for(engine, "connect")
    def connected(_connection: object, record: Any) -> None:
        record.driver_connection.adapters.register_loader("numeric", IntLoader)


def _read_apart(target: Target, work: Callable[[sa.Connection], T]) -> T:
    engine = postgres.open_blocking_engine(target)
    _read_whole_numbers(engine)
    try:
        with engine.connect() as plain:
            connection = plain.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            # It reads everything, and computes in between.
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            return work(connection)
    finally:
        engine.dispose()
