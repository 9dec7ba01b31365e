"""Calls that are in flight, and whether any still arrive: what draining waits for."""

import asyncio


class Traffic:
    """Counts calls; one event loop only."""

    def __init__(self, whole: "Traffic | None" = None) -> None:
        """Assign only; `whole` counts every call of this one too."""
        self.in_flight = 0
        self._whole = whole
        self._moved = asyncio.Event()

    def begin(self) -> None:
        """A call arrived."""
        self.in_flight += 1
        self._moved.set()
        if self._whole is not None:
            self._whole.begin()

    def end(self) -> None:
        """A call that had begun has its answer."""
        self.in_flight -= 1
        self._moved.set()
        if self._whole is not None:
            self._whole.end()

    def end_many(self, count: int) -> None:
        """So many calls have their answers."""
        self.in_flight -= count
        self._moved.set()
        if self._whole is not None:
            self._whole.end_many(count)

    async def until_quiet(self, quiet: float, within: float) -> bool:
        """Wait until nothing has run or arrived for `quiet` seconds; False if that took longer than `within`."""
        try:
            async with asyncio.timeout(within):
                while not await self._was_quiet(quiet):
                    pass
        except TimeoutError:
            return False
        return True

    async def _was_quiet(self, seconds: float) -> bool:
        self._moved.clear()
        try:
            # While calls run their end is awaited; only silence is measured. (Not by `wait_for`: under steady traffic
            # Python 3.11's swallows the cancel that the caller's own timeout is, bpo-42130.)
            async with asyncio.timeout(None if self.in_flight else seconds):
                await self._moved.wait()
        except TimeoutError:
            return self.in_flight == 0
        return False
