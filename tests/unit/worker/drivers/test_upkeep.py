"""Upkeep releases memory when that is due."""

import asyncio

from services.worker.drivers.upkeep import Upkeep


class Counted:
    """Memory of which a part can be given back."""

    def __init__(self) -> None:
        self.bytes, self.idle, self.changes, self.releases = 100 * 1024**2, 0, 0, 0
        self.released = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def resident(self) -> int:
        return self.bytes + self.idle

    def turnover(self) -> int:
        return self.changes

    def release(self) -> None:
        self.idle = 0
        self.releases += 1
        self._loop.call_soon_threadsafe(self.released.set)


async def test_memory_is_given_back_when_models_come_and_go() -> None:
    """At the first look after it, and not again while nothing changes."""
    memory = Counted()
    upkeep = Upkeep(memory)
    await upkeep.look()
    assert memory.releases == 1  # the start left something
    for changes in (1, 3):
        memory.changes, memory.idle = changes, 50 * 1024**2
        await upkeep.look()
        assert memory.resident() == memory.bytes
        await upkeep.look()
    assert memory.releases == 3


async def test_it_looks_until_it_is_cancelled() -> None:
    """The loop finds by itself what is to be given back."""
    memory = Counted()
    memory.idle = 50 * 1024**2
    task = asyncio.create_task(Upkeep(memory, look_seconds=0.001).run())
    async with asyncio.timeout(30):
        await memory.released.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
