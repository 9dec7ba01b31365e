"""How many keys are in each state, counted now and then for whoever looks."""

import asyncio
from collections.abc import Mapping

import structlog

from services.metering.domain.api_key import KeyState
from services.metering.ports.identity_store import IdentityStore
from services.rpc.clock import Clock
from services.rpc.errors import InferplaneError

_log = structlog.get_logger(__name__)

EVERY = 60.0  # seconds


class KeyCounts:
    """Holds the last count: looking at it costs nothing, however many keys there are."""

    def __init__(self, store: IdentityStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.last: Mapping[KeyState, int] = {}

    async def run(self) -> None:
        """Count until cancelled."""
        never = asyncio.Event()
        while True:
            try:
                self.last = await self._store.read(lambda view: view.count_keys(self._clock.now()))
            except InferplaneError as error:
                _log.warning("keys not counted", reason=error.message)
            await self._clock.wait(never, self._clock.monotonic() + EVERY)
