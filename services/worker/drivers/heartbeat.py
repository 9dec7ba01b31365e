"""Tells discovery that this worker lives: at a steady beat, and at once when something changed."""

import asyncio
from collections.abc import Callable

import structlog

from services.worker.ports.discovery import Registration, RegistrationError, WorkerReport

_log = structlog.get_logger(__name__)


class Heartbeat:
    """Renews the lease; `ask` for it now, or `announce` and wait until discovery knows."""

    def __init__(self, report: Callable[[], WorkerReport], beat: float) -> None:
        """Assign only.

        Args:
            report: the worker as of now.
            beat: seconds between renewals.
        """
        self._report = report
        self._beat = beat
        self._asked = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._is_known = True

    def ask(self) -> None:
        """Renew at once."""
        self._asked.set()

    async def announce(self) -> None:
        """Renew at once; returns when a renewal that began after this call has succeeded."""
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(known)
        self.ask()
        await known

    async def run(self, registration: Registration) -> None:
        """Beat until cancelled."""
        while True:
            self._asked.clear()
            asked, self._waiting = self._waiting, []
            if await self._renew(registration):
                for known in asked:
                    if not known.done():
                        known.set_result(None)
            else:  # with the next renewal, unless nobody waits any more
                self._waiting += [known for known in asked if not known.done()]
            await self._until_next()

    async def _until_next(self) -> None:
        try:
            async with asyncio.timeout(self._beat):
                await self._asked.wait()
        except TimeoutError:
            return

    async def _renew(self, registration: Registration) -> bool:
        try:
            await registration.renew(self._report())
        except RegistrationError as error:
            if self._is_known:
                _log.warning("discovery not told, trying again at each beat", error=str(error))
            self._is_known = False
            return False
        if not self._is_known:
            _log.info("discovery told again")
        self._is_known = True
        return True
