"""The clock: what time it is, and waiting until then."""

import asyncio
from datetime import datetime
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
