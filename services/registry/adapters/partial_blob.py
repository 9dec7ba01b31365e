"""One incomplete blob on disk: appended to, hashed as it grows, verified, then moved to its place. Blocking calls."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from services.registry.domain.model import BlobId
from services.rpc.errors import (
    AbortedError,
    DataLossError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
)

_HASH_BYTES = 4 * 1024 * 1024
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class PartialBlob:
    """Bytes of a blob from its first one on."""

    def __init__(
        self, *, blob: BlobId, path: Path, target: Path, completed: Callable[[BlobId], None]
    ) -> None:
        """Assign only; `open` reads what is there.

        Args:
            blob: what it is to become.
            path: where the bytes lie until then.
            target: where the complete blob goes.
            completed: called once the blob is durable in its place.
        """
        self._blob = blob
        self._path = path
        self._target = target
        self._completed = completed
        self._descriptor: int | None = None
        self._digest = hashlib.sha256()
        self.stored_bytes = 0

    @staticmethod
    def refuse_excess(blob: BlobId, stored: int, more: int) -> None:
        """Refuse bytes past the declared end."""
        if stored + more > blob.size_bytes:
            raise InvalidArgumentError(
                f"chunk: {stored + more} bytes arrived of a file that was declared with"
                f" {blob.size_bytes}; allowed: not more than declared",
                reason="FILE_TOO_LONG",
                metadata={"stored_bytes": str(stored), "size_bytes": str(blob.size_bytes)},
            )

    def open(self) -> None:
        """Open for appending and hash what is there; an empty blob is complete at once."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self._path, flags, 0o600)
            while chunk := os.pread(self._descriptor, _HASH_BYTES, self.stored_bytes):
                self._digest.update(chunk)
                self.stored_bytes += len(chunk)
            if self.stored_bytes == self._blob.size_bytes:
                self._complete()
        except OSError as error:
            raise self._failure(error) from error

    def append(self, chunk: bytes) -> None:
        """Store more bytes; after the last one verify and complete."""
        self.refuse_excess(self._blob, self.stored_bytes, len(chunk))
        if self._descriptor is None:  # complete; there is nothing left to append
            return
        try:
            self._write(self._descriptor, chunk)
            self._digest.update(chunk)
            self.stored_bytes += len(chunk)
            if self.stored_bytes == self._blob.size_bytes:
                self._complete()
        except OSError as error:
            self._drop()
            raise self._failure(error) from error

    @staticmethod
    def _write(descriptor: int, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def _complete(self) -> None:
        if self._digest.hexdigest() != self._blob.sha256:
            found = self._digest.hexdigest()
            self._drop()
            raise DataLossError(
                f"the file's SHA-256 is {found}, declared was {self._blob.sha256};"
                " its bytes were dropped, send it again from offset 0",
                metadata={"sha256": found, "declared_sha256": self._blob.sha256},
            )
        assert self._descriptor is not None
        os.fsync(self._descriptor)
        self._target.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            if not os.path.samestat(os.fstat(self._descriptor), self._path.stat()):
                raise FileNotFoundError  # another process began it anew
            self._path.rename(self._target)
        except FileNotFoundError as error:
            raise AbortedError(
                "the version was deleted during its upload", reason="UPLOAD_REMOVED"
            ) from error
        for folder in (self._target.parent, self._target.parent.parent):
            _sync_folder(folder)
        self.close()
        self._completed(self._blob)

    def _drop(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)
        self.stored_bytes = 0

    def _failure(self, error: OSError) -> ResourceExhaustedError | InternalError:
        if error.errno in _FULL:
            return ResourceExhaustedError(
                f"the registry's disk is full ({error.strerror}); the bytes of content"
                f" {self._blob.sha256} were dropped, free some space, then send them again",
                reason="DISK_FULL",
                metadata={"needed_bytes": str(self._blob.size_bytes)},
            )
        return InternalError(f"content {self._blob.sha256} can't be stored: {error.strerror}")

    def close(self) -> None:
        """Close the file; its bytes stay."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _sync_folder(folder: Path) -> None:
    """Make a rename in this folder durable (fsync(2): the file's own fsync doesn't)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
