"""Keeps the process's memory flat: gives back what large runs and models that went have left."""

import asyncio
import time

import structlog

from services.worker.domain.memory_use import MemoryUse
from services.worker.ports.memory import Memory

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0
_INTERVAL = 10.0  # seconds; a run after a release asks the system for its memory anew


class Upkeep:
    """Looks after `Memory`; `run` is its loop."""

    def __init__(self, memory: Memory, look_seconds: float = _LOOK_SECONDS) -> None:
        self._memory = memory
        self._look_seconds = look_seconds
        self._use = MemoryUse(_INTERVAL)

    async def run(self) -> None:
        """Look, and release when that is due, until cancelled."""
        while True:
            await asyncio.sleep(self._look_seconds)
            await self.look()

    async def look(self) -> None:
        """Once."""
        memory = self._memory
        before, turnover = memory.resident(), memory.turnover()
        if not self._use.is_due(time.monotonic(), before, turnover):
            return
        await asyncio.to_thread(memory.release)
        after = memory.resident()
        self._use.released(time.monotonic(), after, turnover)
        _log.debug("memory released", before=before, after=after)
