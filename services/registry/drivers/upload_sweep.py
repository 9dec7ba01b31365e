"""The upload sweep: removes versions whose upload was given up."""

import asyncio
from datetime import datetime, timedelta

import structlog

from services.registry.domain.catalog import Query
from services.registry.domain.model import ModelVersion, VersionState
from services.registry.drivers.versions import Versions
from services.registry.ports.blob_store import BlobStore
from services.registry.ports.store import Store
from services.rpc.clock import Clock
from services.rpc.errors import (
    AbortedError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)

_log = structlog.get_logger(__name__)


class UploadSweep:
    """Wakes when the oldest upload would be over and removes those to which nothing came for too long."""

    def __init__(
        self, store: Store, blobs: BlobStore, versions: Versions, clock: Clock, ttl: timedelta
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._versions = versions
        self._clock = clock
        self._ttl = ttl

    async def run(self) -> None:
        """Sweep until cancelled."""
        never = asyncio.Event()
        while True:
            revision = self._store.revision
            try:
                wait = await self.sweep()
            except (
                UnavailableError,
                ResourceExhaustedError,
            ) as error:  # the database is away or full
                _log.warning("can't look for uploads that were given up", error=error.message)
                wait = timedelta(seconds=error.retry_after or 1.0)
            if wait is None:  # no upload is open: the next one begins with a commit
                await self._store.wait_beyond(revision)
            else:
                # An upload that begins meanwhile lasts longer than those that are open.
                until = self._clock.monotonic() + wait.total_seconds()
                await self._clock.wait(never, until)

    async def sweep(self) -> timedelta | None:
        """Remove what is over; returns how long the next upload has still, None if there is none."""
        query = Query(state=VersionState.UPLOADING)
        uploading = await self._store.read(lambda view: view.find(ModelVersion, query))
        waits = []
        for version in uploading:
            left = await self._last_activity(version) + self._ttl - self._clock.now()
            if left > timedelta():
                waits.append(left)
                continue
            try:
                await self._versions.delete_unfinished(version.name, version.etag)
                _log.info("removed an upload that was given up", version=str(version.name))
            except (AbortedError, NotFoundError):
                continue  # it was finished, declared anew or deleted this moment
        return min(waits, default=None)

    async def _last_activity(self, version: ModelVersion) -> datetime:
        """When a version was declared, or bytes of it arrived last."""
        moments = [version.declare_time]
        for file in version.files:
            moment = await self._blobs.last_write(file.blob)
            if moment is not None:
                moments.append(moment)
        return max(moments)
