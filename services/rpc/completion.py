"""Work that ends once begun, also when the caller that waits for it goes away."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; if this caller is cancelled meanwhile, wait until the work has ended, then be cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            # Nobody is left to be told; asked for, so that it is not reported as never retrieved.
            task.exception()
        raise
