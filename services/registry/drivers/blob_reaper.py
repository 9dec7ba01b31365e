"""The blob reaper: removes contents that no version has any more."""

import asyncio
from collections.abc import Iterable

import structlog

from services.registry.domain.model import BlobId
from services.registry.ports.blob_store import BlobStore
from services.registry.ports.store import Store

_log = structlog.get_logger(__name__)


class BlobReaper:
    """Removes blobs by reference.

    Who begins or ends a reference holds `guard` over the commit and what follows from it.
    """

    def __init__(self, store: Store, blobs: BlobStore) -> None:
        self._store = store
        self._blobs = blobs
        self.guard = asyncio.Lock()

    async def remove_unused(self, among: Iterable[BlobId]) -> None:
        """Remove those of these blobs that no version has; call with `guard` held."""
        candidates = set(among)
        used = await self._store.read(lambda view: view.blobs_in_use(candidates))
        for blob in candidates - used:
            await self._blobs.remove(blob)

    async def sweep(self) -> None:
        """Remove all that no version has: what a crash left behind."""
        async with self.guard:
            used = await self._store.read(lambda view: view.blobs_in_use(None))
            removed = await self._blobs.sweep(used)
            if removed:
                _log.info("removed contents without a version", count=removed)
