"""Looks for workers that died, so that each worker knows of a request that crashes its model before it gets it."""

import asyncio

from services.worker.ports.flights import Flights

_LOOK_SECONDS = 1.0


class FlightWatch:
    """Looks again and again; `run` is its loop."""

    def __init__(self, flights: Flights, look_seconds: float = _LOOK_SECONDS) -> None:
        self._flights = flights
        self._look_seconds = look_seconds

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._flights.look()
            await asyncio.sleep(self._look_seconds)
