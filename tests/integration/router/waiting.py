"""Waiting for what another process or task will do, with a deadline."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def until(holds: Callable[[], bool | Awaitable[bool]], seconds: float = 100.0) -> None:
    """Return once `holds()` is true; TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while True:
            answer = holds()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(0.002)
