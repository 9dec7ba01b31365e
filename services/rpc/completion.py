"""Work that ends once begun, also when its caller goes away; and work that is given up when the process is to stop."""

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


async def done_before(stop: asyncio.Event, work: asyncio.Task[T]) -> bool:
    """Wait for the work: True at its end, or its error raised; False once `stop` is set, and the work cancelled."""
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
            return True
        return False
    finally:
        stopped.cancel()
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
