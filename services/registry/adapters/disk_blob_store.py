"""Contents of files on disk: complete ones by digest, incomplete ones beside them.

sha256/ab/abcd…            complete, verified, durable; never changed
partial/abcd…-{size}       bytes that arrived so far of content that is to have this size
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from services.registry.adapters.partial_blob import PartialBlob
from services.registry.domain.model import BlobId
from services.rpc.completion import to_completion
from services.rpc.errors import AbortedError, DataLossError, InternalError, ResourceExhaustedError

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_READ_BYTES = 1024 * 1024
_RESERVE_BYTES = 64 * 1024 * 1024  # left free for the database and everybody else


async def _in_thread(work: Callable[[], T]) -> T:
    """File work off the event loop; it ends before a cancelled caller goes on, so files are never in use unseen."""
    return await to_completion(asyncio.to_thread(work))


def _disk_free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class DiskBlobWriter:
    """The one open upload of a blob."""

    def __init__(self, upload: PartialBlob | None, blob: BlobId) -> None:
        self._partial = upload
        self._blob = blob
        self.removed = False

    @property
    def stored_bytes(self) -> int:
        return self._blob.size_bytes if self._partial is None else self._partial.stored_bytes

    async def append(self, chunk: bytes) -> None:
        if self.removed:
            raise AbortedError("the version was deleted during its upload", reason="UPLOAD_REMOVED")
        if self._partial is None:
            PartialBlob.refuse_excess(self._blob, self.stored_bytes, len(chunk))
            return
        await _in_thread(partial(self._partial.append, chunk))


class DiskBlobStore:
    """A BlobStore in one folder, which this process alone may write."""

    def __init__(self, root: Path, free_bytes: Callable[[Path], int] = _disk_free) -> None:
        """Assign only; `prepare` makes the folders.

        Args:
            root: the folder.
            free_bytes: space left on the disk that a folder is on.
        """
        self._complete = root / "sha256"
        self._partial = root / "partial"
        self._free_bytes = free_bytes
        self._writers: dict[BlobId, DiskBlobWriter] = {}
        self.total_bytes = 0  # of complete blobs

    def prepare(self, *, keep_partial: bool = True) -> None:
        """Make the folders, settle what a crash left unverified, and count what is there. Blocks.

        Args:
            keep_partial: whether uploads may go on from what is there.
        """
        for folder in (self._complete, self._partial):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not keep_partial:
            for path in self._partial.iterdir():
                path.unlink(missing_ok=True)
        for path in self._partial.iterdir():
            sha256, _, size = path.name.partition("-")
            if size.isdecimal() and path.stat().st_size == int(size):
                self._settle(BlobId(sha256, int(size)))
        self.total_bytes = sum(path.stat().st_size for path in self._complete.glob("*/*"))

    def _settle(self, blob: BlobId) -> None:
        left = self._new_partial(blob)
        try:
            left.open()
        except DataLossError as error:
            _log.warning("dropped an upload", sha256=blob.sha256, error=error.message)
        finally:
            left.close()

    def path(self, blob: BlobId) -> Path:
        return self._complete / blob.sha256[:2] / blob.sha256

    def _partial_path(self, blob: BlobId) -> Path:
        return self._partial / f"{blob.sha256}-{blob.size_bytes}"

    def _complete_now(self, blob: BlobId) -> bool:
        try:
            return self.path(blob).stat().st_size == blob.size_bytes
        except FileNotFoundError:
            return False

    async def is_complete(self, blob: BlobId) -> bool:
        return self._complete_now(blob)

    async def stored_bytes(self, blob: BlobId) -> int:
        if self._complete_now(blob):
            return blob.size_bytes
        try:
            arrived = self._partial_path(blob).stat().st_size
        except FileNotFoundError:
            return 0
        # All bytes and still here: its writer is verifying them this moment.
        return min(arrived, max(0, blob.size_bytes - 1))

    async def last_write(self, blob: BlobId) -> datetime | None:
        for path in (self._partial_path(blob), self.path(blob)):
            try:
                return datetime.fromtimestamp(path.stat().st_mtime, UTC)
            except FileNotFoundError:
                continue
        return None

    @asynccontextmanager
    async def open_writer(self, blob: BlobId) -> AsyncIterator[DiskBlobWriter]:
        if blob in self._writers:
            raise AbortedError(
                f"content {blob.sha256} is being uploaded already; wait until that upload ends",
                reason="UPLOAD_IN_PROGRESS",
                metadata={"sha256": blob.sha256},
                retry_after=1.0,
            )
        upload = None if self._complete_now(blob) else self._new_partial(blob)
        writer = self._writers[blob] = DiskBlobWriter(upload, blob)
        try:
            if upload is not None:
                self._check_space(blob, await self.stored_bytes(blob))
                await _in_thread(upload.open)
            yield writer
        finally:
            if upload is not None:
                upload.close()
            del self._writers[blob]

    def _new_partial(self, blob: BlobId) -> PartialBlob:
        return PartialBlob(
            blob=blob, path=self._partial_path(blob), target=self.path(blob), completed=self._count
        )

    def _count(self, blob: BlobId) -> None:
        self.total_bytes += blob.size_bytes

    def _check_space(self, blob: BlobId, stored: int) -> None:
        needed = blob.size_bytes - stored
        free = max(0, self._free_bytes(self._partial) - _RESERVE_BYTES)
        if needed > free:
            raise ResourceExhaustedError(
                f"the registry's disk has {free} bytes to spare, but {needed} bytes of content"
                f" {blob.sha256} are to come; free some space, then resume",
                reason="DISK_FULL",
                metadata={"free_bytes": str(free), "needed_bytes": str(needed)},
            )

    async def read(self, blob: BlobId, offset: int) -> AsyncIterator[bytes]:
        with self._opened(blob) as descriptor:
            position = offset
            while chunk := await _in_thread(partial(os.pread, descriptor, _READ_BYTES, position)):
                position += len(chunk)
                yield chunk

    @contextmanager
    def _opened(self, blob: BlobId) -> Iterator[int]:
        try:
            descriptor = os.open(self.path(blob), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise InternalError(f"content {blob.sha256} can't be read: {error.strerror}") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    async def remove(self, blob: BlobId) -> None:
        if blob in self._writers:
            self._writers[blob].removed = True
        await _in_thread(lambda: self._remove(self._partial_path(blob)))
        if self._complete_now(blob):
            await _in_thread(lambda: self._remove(self.path(blob)))
            self.total_bytes -= blob.size_bytes

    @staticmethod
    def _remove(path: Path) -> None:
        path.unlink(missing_ok=True)

    async def sweep(self, keep: Collection[BlobId]) -> int:
        return await _in_thread(lambda: self._sweep(keep))

    def _sweep(self, keep: Collection[BlobId]) -> int:
        wanted = {self._partial_path(blob) for blob in keep} | {self.path(blob) for blob in keep}
        unwanted = [
            path
            for path in (*self._partial.iterdir(), *self._complete.glob("*/*"))
            if path not in wanted
        ]
        for path in unwanted:
            if path.parent != self._partial:
                self.total_bytes -= path.stat().st_size
            path.unlink()
        return len(unwanted)
