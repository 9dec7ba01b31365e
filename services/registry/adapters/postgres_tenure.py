"""The tenure on Postgres: one of several processes has a lock there, and a number that says that it had it last.

The lock says who should serve. The number (the epoch) keeps one that was frozen or cut off from writing: every
transaction looks at it. Contents of files lie in a folder that all share. Its lock file is taken too, but one that
can't be had doesn't keep a process from serving: its holder may be frozen for ever.
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import structlog

from services.registry.adapters.disk_blob_store import DiskBlobStore
from services.registry.adapters.sql_store import SqlStore
from services.registry.ports.tenure import Doubt
from services.rpc import postgres, state_lock
from services.rpc.errors import FailedPreconditionError, UnavailableError
from services.rpc.postgres import Target
from services.rpc.postgres_lock import SessionLock

_log = structlog.get_logger(__name__)

_QUIET_SECONDS = 1.0  # as long a restart of the server is nobody's business
_AGAIN_SECONDS = 0.1


class PostgresTenure:
    """A Tenure that ends with the lock, unless it is had again before another process began."""

    def __init__(
        self, target: Target, store: SqlStore, blobs: DiskBlobStore, folder_lock: Path, ttl: float
    ) -> None:
        """Assign only.

        Args:
            target: the store's database.
            store: on that database.
            blobs: contents, in a folder that the processes share.
            folder_lock: the folder's lock file.
            ttl: seconds of silence after which another process may begin.
        """
        self._lock = SessionLock(target, postgres.lock_key("registry", "tenure"), ttl=ttl)
        self._store = store
        self._blobs = blobs
        self._folder_lock = folder_lock
        self._held = ExitStack()
        self._ttl = ttl

    @property
    def sole(self) -> bool:
        return False

    async def begin(self) -> None:
        while True:
            await self._lock.acquire()
            try:
                await self._store.take_over()
            except UnavailableError as error:
                _log.warning("can't take over yet", error=error.message)
                await self._lock.release()
                await asyncio.sleep(error.retry_after or 1.0)
            else:
                break
        await asyncio.to_thread(self._take_folder)
        _log.info("serving from now on", revision=self._store.revision)

    def _take_folder(self) -> None:
        alone = True
        try:
            self._held.enter_context(state_lock.held(self._folder_lock, "registry"))
        except (FailedPreconditionError, OSError) as error:
            _log.warning("the folder of contents is held by another process", error=str(error))
            alone = False
        # One that lives may still write to the files of its uploads; those are begun anew.
        self._blobs.prepare(keep_partial=alone)

    async def over(self, doubt: Doubt) -> None:
        while True:
            await _first(self._lock.lost, self._store.superseded)
            if self._store.superseded.is_set() or not await self._regained(doubt):
                self._store.end_turn()
                return

    async def _regained(self, doubt: Doubt) -> bool:
        """Whether the lock was had again, and nobody had it meanwhile."""
        regaining = asyncio.create_task(self._regain())
        try:
            await asyncio.wait([regaining], timeout=_QUIET_SECONDS)
            doubted = not regaining.done()
            if doubted:
                await doubt(doubtful=True)
                await asyncio.wait([regaining], timeout=max(0.0, self._ttl - _QUIET_SECONDS))
            if not regaining.done() or not regaining.result():
                return False
            if doubted:
                await doubt(doubtful=False)
        finally:
            regaining.cancel()
            await asyncio.wait([regaining])
        return True

    async def _regain(self) -> bool:
        await self._lock.release()
        while True:
            try:
                if not await self._store.leads():
                    return False
                # Had between two looks, nobody can have begun in between.
                if await self._lock.attempt():
                    return await self._store.leads()
            except UnavailableError as error:
                _log.warning("can't tell who serves", error=error.message)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def end(self) -> None:
        await asyncio.to_thread(self._held.close)
        await self._lock.release()


async def _first(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
