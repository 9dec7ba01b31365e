"""The tenure: the time in which this process is the one that serves."""

import asyncio
from typing import Protocol


class Doubt(Protocol):
    """Told that it can't be said for a while who serves, and that it can again."""

    async def __call__(self, *, doubtful: bool) -> None: ...


class Tenure(Protocol):
    """Begun once, by one task."""

    @property
    def sole(self) -> bool:
        """Whether no other process can be serving: `begin` doesn't wait then."""
        ...

    async def begin(self) -> None:
        """Wait until no other process serves; then store and contents are this one's, and ready."""
        ...

    async def over(self, doubt: Doubt) -> None:
        """Return when another process serves, or may."""
        ...

    async def end(self) -> None:
        """Let another process begin."""
        ...


class SoleTenure:
    """The Tenure of a process that has its store for itself since it was opened."""

    @property
    def sole(self) -> bool:
        return True

    async def begin(self) -> None:
        return

    async def over(self, doubt: Doubt) -> None:
        del doubt
        await asyncio.Event().wait()

    async def end(self) -> None:
        return
