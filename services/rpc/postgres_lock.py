"""A lock that one process holds as long as its connection lives: who leads, and noticing that one doesn't any more."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

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
        self._connection: _Connection | None = None
        self._beating: asyncio.Task[None] | None = None
        self._said = ""
        self.lost = asyncio.Event()  # set when what was held is held no more

    async def attempt(self) -> bool:
        """Take the lock if nobody else has it; False also if the server can't be asked."""
        try:
            if self._connection is None:
                self._connection = await self._connected()
            cursor = await self._connection.execute("SELECT pg_try_advisory_lock(%s)", (self._key,))
            row = await cursor.fetchone()
        except (psycopg.OperationalError, InferplaneError) as error:
            await self.release()
            self._say("can't ask for the lock", error=str(error).strip())
            return False
        if row is None or not row[0]:
            self._say("waiting for the lock")
            return False
        self._said = ""
        self.lost = asyncio.Event()
        self._beating = asyncio.create_task(self._beat(self._connection, self.lost))
        return True

    async def acquire(self) -> None:
        """Wait until the lock is this process's."""
        try:
            while True:
                if await self.attempt():
                    return
                await asyncio.sleep(_TRY_EVERY * random.uniform(0.75, 1.25))
        except BaseException:
            await self.release()
            raise

    async def release(self) -> None:
        """Let another have it, at once."""
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait([beating])
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.OperationalError):
                await connection.close()

    @asynccontextmanager
    async def held(self, within: float | None = None) -> AsyncIterator[asyncio.Event]:
        """Wait for the lock and hold it; the event is set when it is lost.

        Args:
            within: seconds; TimeoutError if it can't be had until then. None: wait for ever.
        """
        async with asyncio.timeout(within):
            await self.acquire()
        try:
            yield self.lost
        finally:
            await self.release()

    async def _connected(self) -> _Connection:
        silence = str(max(1000, int(self._ttl * 1000)))  # milliseconds
        parameters = self._target.parameters(idle_session_timeout=silence)
        return await psycopg.AsyncConnection.connect(**parameters, autocommit=True)

    async def _beat(self, connection: _Connection, lost: asyncio.Event) -> None:
        """Keep the session from being silent, until it doesn't answer: known no later than the lock is another's."""
        try:
            while True:
                await asyncio.sleep(self._ttl / 5)
                asking = asyncio.ensure_future(connection.execute("SELECT 1"))
                try:
                    await asyncio.wait([asking], timeout=self._ttl * 4 / 5)
                    if not asking.done():
                        lost.set()  # at once, for giving a question up may take ten seconds more
                        raise TimeoutError("no answer")
                finally:
                    await self._given_up(asking)
                asking.result()
        except (psycopg.OperationalError, TimeoutError) as error:
            _log.warning("lost the lock", service=self._target.service, error=str(error).strip())
        finally:
            lost.set()

    @staticmethod
    async def _given_up(asking: asyncio.Future[Any]) -> None:
        if not asking.done():
            asking.cancel()
            await asyncio.wait([asking])

    def _say(self, what: str, **why: str) -> None:
        """Log it unless it is what was logged last."""
        said = f"{what} {why}"
        if said != self._said:
            self._said = said
            _log.info(what, service=self._target.service, **why)
