"""The board: the newest publication, for all who wait for it."""

import asyncio

from services.router.domain.publication import Publication


class Board:
    """Holds what is published now and wakes its readers when that changes. For one event loop."""

    def __init__(self) -> None:
        self.current: Publication | None = None
        self._readers: set[asyncio.Event] = set()

    def post(self, publication: Publication) -> None:
        """Publish."""
        self.current = publication
        for reader in self._readers:
            reader.set()

    def join(self, wake: asyncio.Event) -> None:
        """Have `wake` set at every publication."""
        self._readers.add(wake)

    def leave(self, wake: asyncio.Event) -> None:
        """Stop that."""
        self._readers.discard(wake)
