"""A lock that one process holds as long as its connection lives: who leads, and noticing that one doesn't any more."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import structlog

from services.rpc.errors import InferplaneError
from services.rpc.postgres import Target

_log = structlog.get_logger(__name__)

_Connection = psycopg.AsyncConnection[tuple[object, ...]]
_TRY_EVERY = 0.4  # seconds; asking is cheap, and a statement that waits would hold back the server's clean-up


class SessionLock:
    """An advisory lock of a session of its own.

    The server releases it when the process ends, when its machine is gone, and when it has been silent for longer
    than `ttl`, as one that is frozen is. So to hold it says who should act; it can't keep a process from acting that
    doesn't know yet. What must not be done by two is checked where it is done.
    """

    def __init__(self, target: Target, key: int, *, ttl: float) -> None:
        """Assign only.

        Args:
            target: the database.
            key: of `postgres.lock_key`.
            ttl: seconds of silence after which the server gives the lock to another.
        """
        self._target = target
        self._key = key
        self._ttl = ttl

    @asynccontextmanager
    async def held(self, within: float | None = None) -> AsyncIterator[asyncio.Event]:
        """Wait for the lock and hold it; the event is set when it is lost.

        Args:
            within: seconds; TimeoutError if it can't be had until then. None: wait for ever.
        """
        async with asyncio.timeout(within):
            connection = await self._acquired()
        lost = asyncio.Event()
        beating = asyncio.create_task(self._beat(connection, lost))
        try:
            yield lost
        finally:
            beating.cancel()
            await asyncio.wait([beating])
            await _closed(connection)

    async def _acquired(self) -> _Connection:
        while True:
            try:
                connection = await self._connected()
            except (psycopg.OperationalError, InferplaneError) as error:
                _log.warning("can't ask for the lock", error=str(error).strip())
            else:
                if await self._won(connection):
                    return connection
            await asyncio.sleep(_pause())

    async def _connected(self) -> _Connection:
        silence = str(max(1000, int(self._ttl * 1000)))  # milliseconds
        parameters = self._target.parameters(idle_session_timeout=silence)
        return await psycopg.AsyncConnection.connect(**parameters, autocommit=True)

    async def _won(self, connection: _Connection) -> bool:
        """Ask until the lock is had; False if the connection was lost first."""
        try:
            while True:
                if await self._ask(connection):
                    return True
                await asyncio.sleep(_pause())
        except psycopg.OperationalError as error:
            _log.warning("lost the connection that waits for the lock", error=str(error).strip())
            await _closed(connection)
            return False
        except BaseException:
            await _closed(connection)
            raise

    async def _ask(self, connection: _Connection) -> bool:
        cursor = await connection.execute("SELECT pg_try_advisory_lock(%s)", (self._key,))
        row = await cursor.fetchone()
        return row is not None and bool(row[0])

    async def _beat(self, connection: _Connection, lost: asyncio.Event) -> None:
        """Keep the session from being silent, until it doesn't answer."""
        try:
            while True:
                await asyncio.sleep(self._ttl / 5)
                async with asyncio.timeout(self._ttl):
                    await connection.execute("SELECT 1")
        except (psycopg.OperationalError, TimeoutError) as error:
            _log.warning("lost the lock", service=self._target.service, error=str(error).strip())
        finally:
            lost.set()


def _pause() -> float:
    return _TRY_EVERY * random.uniform(0.75, 1.25)


async def _closed(connection: _Connection) -> None:
    with contextlib.suppress(psycopg.OperationalError):
        await connection.close()
