"""A listener: hears what other processes tell by NOTIFY, on a connection of its own that is made again when lost."""

from collections.abc import Awaitable, Callable

import psycopg
import structlog
import tenacity
from psycopg import sql

from services.rpc.errors import InferplaneError
from services.rpc.postgres import Target

_log = structlog.get_logger(__name__)

_Connection = psycopg.AsyncConnection[tuple[object, ...]]
# Given what was told, or None: something may have been told that was not heard, so look at everything.
Heard = Callable[[str | None], Awaitable[None]]


class Listener:
    """Tells one owner of news in a channel.

    Nothing is missed: it looks at everything after each (re)connect, once it listens, and every so often on top.
    """

    def __init__(self, target: Target, channel: str, heard: Heard, *, every: float = 2.0) -> None:
        """Assign only; `run` listens.

        Args:
            target: the database.
            channel: of NOTIFY.
            heard: called for one piece of news after another; errors of ours that it raises are logged, and it is
                called again a little later.
            every: seconds without news after which it looks all the same.
        """
        self._target = target
        self._channel = channel
        self._heard = heard
        self._every = every

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            retrying = tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type((psycopg.OperationalError, InferplaneError)),
                wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
                before_sleep=self._note,
            )
            connection: _Connection = await retrying(self._connected)
            try:
                async with connection:
                    await self._follow(connection)
            except (psycopg.OperationalError, InferplaneError) as error:
                _log.warning("stopped listening", channel=self._channel, error=str(error).strip())

    async def _connected(self) -> _Connection:
        connection = await psycopg.AsyncConnection.connect(
            **self._target.parameters(), autocommit=True
        )
        try:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            await self._heard(None)  # what was told before this
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _follow(self, connection: _Connection) -> None:
        while True:
            quiet = True
            async for told in connection.notifies(timeout=self._every, stop_after=1):
                quiet = False
                await self._heard(told.payload)
            if quiet:
                await connection.execute("SELECT 1")  # is anybody still there?
                await self._heard(None)

    def _note(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        _log.warning("can't listen, trying again", channel=self._channel, error=str(error).strip())
