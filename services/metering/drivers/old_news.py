"""Forgets what processes on one database told each other, once all that live have long heard of it."""

import asyncio
from collections import deque

import structlog

from services.metering.ports.news_log import NewsLog
from services.rpc.clock import Clock
from services.rpc.errors import InferplaneError

_log = structlog.get_logger(__name__)

_PAUSE = 3600.0  # seconds
# A process hears of a change within a second. One that has heard nothing for so long has served nobody meanwhile, and
# begins again.
_KEPT = 24 * 3600.0


class OldNews:
    """Used on the event loop."""

    def __init__(self, log: NewsLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._looks: deque[tuple[float, int]] = deque()  # when, and what was the newest then

    async def run(self) -> None:
        """Until cancelled."""
        never = asyncio.Event()
        while True:
            try:
                await self.look()
            except InferplaneError as error:
                _log.error("old changes not forgotten, trying again", reason=error.message)
            await self._clock.wait(never, self._clock.monotonic() + _PAUSE)

    async def look(self) -> int:
        """Forget what was there a day ago; how many changes."""
        now = self._clock.monotonic()
        self._looks.append((now, await self._log.newest_news()))
        until = None
        while self._looks[0][0] <= now - _KEPT:
            until = self._looks.popleft()[1]
        total = 0
        while until is not None and (forgotten := await self._log.forget_news(until)):
            total += forgotten
        if total:
            _log.info("forgot old changes", changes=total)
        return total
