"""The blob store: contents of files by their digest, and uploads that are not complete yet."""

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol

from services.registry.domain.model import BlobId


class BlobWriter(Protocol):
    """The one open upload of a blob."""

    @property
    def stored_bytes(self) -> int:
        """Bytes stored so far."""
        ...

    async def append(self, chunk: bytes) -> None:
        """Store more bytes. After the last one the digest is verified and the blob is durable.

        InvalidArgumentError: more bytes than the blob has. DataLossError: wrong digest, the bytes are dropped.
        ResourceExhaustedError: the disk is full, the bytes are dropped. AbortedError: the blob was removed meanwhile.
        """
        ...


class BlobStore(Protocol):
    """Keeps contents. A complete blob is durable and verified; an incomplete one keeps its bytes for a later resume."""

    async def stored_bytes(self, blob: BlobId) -> int:
        """Bytes that are stored; equal to the blob's size only when it is complete and verified."""
        ...

    async def is_complete(self, blob: BlobId) -> bool:
        """Whether all bytes are stored and verified; an empty blob is complete once a writer was open."""
        ...

    async def last_write(self, blob: BlobId) -> datetime | None:
        """When bytes arrived last; None if nothing is stored."""
        ...

    def open_writer(self, blob: BlobId) -> AbstractAsyncContextManager[BlobWriter]:
        """Continue at what is stored. AbortedError (UPLOAD_IN_PROGRESS) while another writer is open."""
        ...

    def read(self, blob: BlobId, offset: int) -> AsyncIterator[bytes]:
        """Bytes of a complete blob from `offset` on, also if it is removed meanwhile."""
        ...

    def path(self, blob: BlobId) -> Path:
        """Where a complete blob lies; not to be changed."""
        ...

    async def remove(self, blob: BlobId) -> None:
        """Remove a blob, complete or not; an open writer fails with its next append."""
        ...

    async def sweep(self, keep: Collection[BlobId]) -> int:
        """Remove all blobs but these; returns how many went."""
        ...
