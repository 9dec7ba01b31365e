"""Watches of the store: all there is, then what changes, at the reader's own pace."""

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from services.registry.domain.catalog import ChangeSet, ResourceKind
from services.registry.ports.store import Store
from services.rpc.errors import InvalidArgumentError

_PROGRESS_EVERY = (
    1000  # revisions that pass without a change of interest until the reader is told where it is
)


@dataclass(frozen=True, slots=True)
class Watching:
    """What a reader asks for."""

    after_revision: int  # 0: begin with all there is
    kinds: Collection[ResourceKind]


class Watches:
    """Serves any number of readers; each one's position is its own, so a slow one costs a writer nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.readers = 0

    async def follow(self, watching: Watching) -> AsyncIterator[ChangeSet]:
        """The first set brings the reader up to date; each later one holds all that changed since the one before."""
        if watching.after_revision < 0:
            raise InvalidArgumentError.of_field(
                "after_revision",
                f"{watching.after_revision}; allowed: 0, or a revision that was sent",
            )
        with self._counted():
            if watching.after_revision == 0:
                news = await self._store.snapshot(watching.kinds)
            else:
                news = await self._store.changes(watching.after_revision, watching.kinds)
            yield news
            told = seen = news.revision
            while True:
                await self._store.wait_beyond(seen)
                news = await self._store.changes(seen, watching.kinds)
                seen = news.revision
                if news.changes or seen - told >= _PROGRESS_EVERY:
                    told = seen
                    yield news

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
