"""The clock: what time it is, and waiting until then."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for leases."""

    def now(self) -> datetime:
        """Wall time in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Return when the event is set or monotonic time has reached `until`; None: no such time."""
        ...


class SystemClock:
    """A Clock that waits for real."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        try:
            async with asyncio.timeout(
                None if until is None else max(0.0, until - time.monotonic())
            ):
                await event.wait()
        except TimeoutError:
            return
