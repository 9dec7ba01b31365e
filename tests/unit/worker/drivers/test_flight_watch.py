"""Who died is looked for again and again."""

import asyncio
from typing import Any

from services.worker.drivers.flight_watch import FlightWatch


class Looked:
    """Flights that end the wait of a test when they are looked at for the third time."""

    def __init__(self) -> None:
        self.times = 0
        self.often = asyncio.Event()

    def look(self) -> bool:
        self.times += 1
        if self.times == 3:
            self.often.set()
        return False


async def test_it_looks_until_it_is_cancelled() -> None:
    """First at once, since nobody may have asked yet."""
    flights: Any = Looked()
    running = asyncio.create_task(FlightWatch(flights, 0.001).run())
    async with asyncio.timeout(30):
        await flights.often.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
