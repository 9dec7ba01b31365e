"""The machine's clocks."""

import asyncio
import time
from datetime import UTC, datetime


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
