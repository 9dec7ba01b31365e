"""A clock that is moved by hand."""

import asyncio
from datetime import UTC, datetime, timedelta


class ManualClock:
    """Time stands still until `advance`."""

    def __init__(self) -> None:
        self._wall = datetime(2030, 1, 1, tzinfo=UTC)
        self._monotonic = 1000.0
        self._moved = asyncio.Event()

    def now(self) -> datetime:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def set_wall(self, moment: datetime) -> None:
        self._wall = moment

    def advance(self, seconds: float) -> None:
        self._wall += timedelta(seconds=seconds)
        self._monotonic += seconds
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        while not event.is_set() and (until is None or self._monotonic < until):
            waits = [
                asyncio.ensure_future(event.wait()),
                asyncio.ensure_future(self._moved.wait()),
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
