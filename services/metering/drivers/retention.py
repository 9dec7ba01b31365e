"""Drops request rows once they are old; the ledger and the sums stay."""

import asyncio
from datetime import timedelta

import structlog

from services.metering.ports.usage_store import UsageStore
from services.rpc.clock import Clock
from services.rpc.errors import InferplaneError

_log = structlog.get_logger(__name__)

_PAUSE = 3600.0  # seconds
_MICROSECONDS = 1_000_000


class Retention:
    """Used on the event loop."""

    def __init__(self, store: UsageStore, clock: Clock, *, days: int) -> None:
        self._store = store
        self._clock = clock
        self._kept = timedelta(days=days)

    async def run(self) -> None:
        """Until cancelled."""
        never = asyncio.Event()
        while True:
            try:
                await self.drop()
            except InferplaneError as error:
                _log.error("old request rows not dropped, trying again", reason=error.message)
            await self._clock.wait(never, self._clock.monotonic() + _PAUSE)

    async def drop(self) -> int:
        """Drop what is old now; how many rows."""
        oldest = int((self._clock.now() - self._kept).timestamp() * _MICROSECONDS)
        total = 0
        while dropped := await self._store.drop_before(oldest):
            total += dropped
        if total:
            _log.info("dropped old request rows", rows=total)
        return total
