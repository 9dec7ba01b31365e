"""Use cases of artifacts: bytes in, bytes out."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.registry.domain.model import ArtifactFile, ModelVersion, VersionState
from services.registry.drivers.blob_reaper import BlobReaper
from services.registry.drivers.lookup import existing
from services.registry.ports.blob_store import BlobStore
from services.registry.ports.store import Store
from services.rpc.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from services.rpc.names import VersionName, shown

LARGEST_CHUNK = 4 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOffset:
    """A place in a file of a version."""

    version: VersionName
    path: str
    offset: int


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """How much of a file is stored."""

    path: str
    stored_bytes: int
    complete: bool


class Uploads:
    """Receives and sends the files of versions."""

    def __init__(self, store: Store, blobs: BlobStore, reaper: BlobReaper) -> None:
        self._store = store
        self._blobs = blobs
        self._reaper = reaper

    async def stored(self, name: VersionName) -> list[StoredBytes]:
        """How much of each declared file is stored."""
        version = await self._version(name)
        found = []
        for file in version.files:
            arrived = await self._blobs.stored_bytes(file.blob)
            found.append(StoredBytes(file.path, arrived, await self._blobs.is_complete(file.blob)))
        return found

    async def receive(self, start: FileOffset, chunks: AsyncIterator[bytes]) -> StoredBytes:
        """Append chunks to a file until the stream ends; what arrived stays, however it ends."""
        file = _file(await self._version(start.version), start.path)
        async with self._blobs.open_writer(file.blob) as writer:
            await self._refuse_if_gone(start.version, file)
            _check_offset(start, writer.stored_bytes)
            async for chunk in chunks:
                if len(chunk) > LARGEST_CHUNK:
                    raise InvalidArgumentError.of_field(
                        "chunk", f"{len(chunk)} bytes; allowed: at most {LARGEST_CHUNK}"
                    )
                await writer.append(chunk)
            arrived = writer.stored_bytes
            return StoredBytes(file.path, arrived, arrived == file.size_bytes)

    async def _refuse_if_gone(self, name: VersionName, file: ArtifactFile) -> None:
        """Refuse an upload whose version was deleted before its writer was open; later a deletion finds the writer."""
        async with self._reaper.guard:
            try:
                await self._version(name)
            except NotFoundError:
                await self._reaper.remove_unused([file.blob])
                raise

    async def send(self, start: FileOffset) -> AsyncIterator[bytes]:
        """A file of a READY version from an offset on."""
        version = await self._version(start.version)
        file = _file(version, start.path)
        if version.state is not VersionState.READY:
            raise FailedPreconditionError(
                f"{version.name} is {version.state.value}; allowed: a READY version",
                reason="VERSION_NOT_READY",
                metadata={"resource": str(version.name), "state": version.state.value},
            )
        if not 0 <= start.offset <= file.size_bytes:
            raise OutOfRangeError(
                f"offset: {start.offset}; allowed: 0 to {file.size_bytes}",
                reason="OFFSET_OUT_OF_RANGE",
                metadata={"offset": str(start.offset), "size_bytes": str(file.size_bytes)},
            )
        async for chunk in self._blobs.read(file.blob, start.offset):
            yield chunk

    async def _version(self, name: VersionName) -> ModelVersion:
        return await self._store.read(lambda view: existing(view, ModelVersion, name))


def _file(version: ModelVersion, path: str) -> ArtifactFile:
    for file in version.files:
        if file.path == path:
            return file
    declared = ", ".join(file.path for file in version.files[:10])
    raise NotFoundError(
        f"path: {version.name} declares no file {shown(path)}; declared: {declared}",
        reason="FILE_NOT_FOUND",
        metadata={"resource": str(version.name), "path": path[:255]},
    )


def _check_offset(start: FileOffset, stored: int) -> None:
    if start.offset != stored:
        raise OutOfRangeError(
            f"offset: {start.offset} was given, but {stored} bytes of {start.path!a} are stored;"
            f" allowed: {stored}",
            reason="OFFSET_MISMATCH",
            metadata={"offset": str(start.offset), "stored_bytes": str(stored)},
        )
