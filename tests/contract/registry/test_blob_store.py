"""What the blob store promises: verified, durable, resumable, exclusive, and nothing half-stored."""

import asyncio
import hashlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.registry.adapters.disk_blob_store import DiskBlobStore
from services.registry.domain.model import BlobId
from services.rpc.errors import (
    AbortedError,
    DataLossError,
    InvalidArgumentError,
    ResourceExhaustedError,
)

CONTENT = os.urandom(300_000)


def blob_of(content: bytes) -> BlobId:
    return BlobId(hashlib.sha256(content).hexdigest(), len(content))


BLOB = blob_of(CONTENT)


def opened(root: Path) -> DiskBlobStore:
    store = DiskBlobStore(root)
    store.prepare()
    return store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def store(root: Path) -> DiskBlobStore:
    return opened(root)


async def upload(store: DiskBlobStore, blob: BlobId, *chunks: bytes) -> int:
    async with store.open_writer(blob) as writer:
        for chunk in chunks:
            await writer.append(chunk)
        return writer.stored_bytes


async def content(store: DiskBlobStore, blob: BlobId, offset: int = 0) -> bytes:
    return b"".join([chunk async for chunk in store.read(blob, offset)])


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def test_content_comes_back(store: DiskBlobStore, root: Path) -> None:
    """What was stored in pieces is read back whole or from any offset, and lies under its digest."""
    assert await upload(store, BLOB, CONTENT[:1000], b"", CONTENT[1000:]) == BLOB.size_bytes
    assert await content(store, BLOB) == CONTENT
    assert await content(store, BLOB, 299_990) == CONTENT[-10:]
    assert await content(store, BLOB, BLOB.size_bytes) == b""
    assert files(root) == [f"sha256/{BLOB.sha256[:2]}/{BLOB.sha256}"]
    assert store.total_bytes == BLOB.size_bytes


async def test_an_upload_is_resumed_where_it_ended(root: Path) -> None:
    """What arrived before a stream broke, or the process died, stays and is hashed again."""
    first = opened(root)

    async def broken() -> None:
        async with first.open_writer(BLOB) as writer:
            await writer.append(CONTENT[:1000])
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await broken()
    assert await first.stored_bytes(BLOB) == 1000
    assert await upload(first, BLOB, CONTENT[1000:2000]) == 2000
    second = opened(root)
    assert await second.stored_bytes(BLOB) == 2000
    assert await upload(second, BLOB, CONTENT[2000:]) == BLOB.size_bytes
    assert await content(second, BLOB) == CONTENT


async def test_a_cancelled_upload_keeps_what_arrived(store: DiskBlobStore) -> None:
    """A writer whose task is cancelled leaves whole chunks behind and frees its place."""
    arrived = asyncio.Event()

    async def stall() -> None:
        async with store.open_writer(BLOB) as writer:
            await writer.append(CONTENT[:5000])
            arrived.set()
            await asyncio.Event().wait()

    stalled = asyncio.create_task(stall())
    await arrived.wait()
    stalled.cancel()
    await asyncio.wait([stalled])
    assert await store.stored_bytes(BLOB) == 5000
    assert await upload(store, BLOB, CONTENT[5000:]) == BLOB.size_bytes


async def test_a_wrong_digest_drops_the_bytes(store: DiskBlobStore, root: Path) -> None:
    """Bytes that are not what was declared leave nothing behind; sent right afterwards they are taken."""
    with pytest.raises(DataLossError) as refused:
        await upload(store, BLOB, b"x" * BLOB.size_bytes)
    assert refused.value.metadata["declared_sha256"] == BLOB.sha256
    assert files(root) == []
    assert await store.stored_bytes(BLOB) == 0
    assert await upload(store, BLOB, CONTENT) == BLOB.size_bytes


async def test_more_than_declared_is_refused(store: DiskBlobStore) -> None:
    """Bytes past the declared end are refused before they are stored, also on complete content."""
    with pytest.raises(InvalidArgumentError) as refused:
        await upload(store, BLOB, CONTENT[:-1], b"xy")
    assert refused.value.reason == "FILE_TOO_LONG"
    assert await store.stored_bytes(BLOB) == BLOB.size_bytes - 1
    await upload(store, BLOB, CONTENT[-1:])
    with pytest.raises(InvalidArgumentError):
        await upload(store, BLOB, b"x")
    assert await content(store, BLOB) == CONTENT


async def test_one_writer_at_a_time(store: DiskBlobStore) -> None:
    """A second upload of the same content is refused until the first ends; others are not."""
    async with store.open_writer(BLOB) as writer:
        await writer.append(CONTENT[:10])
        with pytest.raises(AbortedError) as refused:
            await upload(store, BLOB)
        assert refused.value.reason == "UPLOAD_IN_PROGRESS"
        await upload(store, blob_of(b"other"), b"other")
    assert await upload(store, BLOB, CONTENT[10:]) == BLOB.size_bytes


async def test_content_that_is_there_needs_no_bytes(store: DiskBlobStore) -> None:
    """A second upload of complete content begins at its end."""
    await upload(store, BLOB, CONTENT)
    async with store.open_writer(BLOB) as writer:
        assert writer.stored_bytes == BLOB.size_bytes
    assert store.total_bytes == BLOB.size_bytes


async def test_a_wrong_size_is_other_content(store: DiskBlobStore) -> None:
    """A declaration with the right digest and a wrong size doesn't pass as complete."""
    await upload(store, BLOB, CONTENT)
    lie = BlobId(BLOB.sha256, 5)
    assert await store.stored_bytes(lie) == 0
    with pytest.raises(DataLossError):
        await upload(store, lie, CONTENT[:5])
    assert await content(store, BLOB) == CONTENT


async def test_empty_content_is_complete_once_opened(store: DiskBlobStore) -> None:
    """An empty file needs no chunk."""
    empty = blob_of(b"")
    assert not await store.is_complete(empty)
    assert await upload(store, empty) == 0
    assert await content(store, empty) == b""
    assert await store.is_complete(empty)


async def test_removal_during_an_upload_ends_it(store: DiskBlobStore, root: Path) -> None:
    """An open writer of removed content fails with its next append, and nothing stays."""

    async def interrupted() -> None:
        async with store.open_writer(BLOB) as writer:
            await writer.append(CONTENT[:10])
            await store.remove(BLOB)
            await writer.append(CONTENT[10:])

    with pytest.raises(AbortedError) as refused:
        await interrupted()
    assert refused.value.reason == "UPLOAD_REMOVED"
    assert files(root) == []
    assert await upload(store, BLOB, CONTENT) == BLOB.size_bytes


async def test_removal_during_a_read_lets_it_end(store: DiskBlobStore) -> None:
    """Who began to read reads to the end."""
    big = os.urandom(3 * 1024 * 1024)
    blob = blob_of(big)
    await upload(store, blob, big)
    reading = store.read(blob, 0)
    got = await anext(reading)
    await store.remove(blob)
    assert store.total_bytes == 0
    async for chunk in reading:
        got += chunk
    assert got == big


async def test_the_sweep_keeps_what_it_is_told(store: DiskBlobStore, root: Path) -> None:
    """Complete and incomplete content goes unless it is to be kept."""
    kept, gone, half = blob_of(b"kept"), blob_of(b"gone"), blob_of(b"halves")
    await upload(store, kept, b"kept")
    await upload(store, gone, b"gone")
    await upload(store, half, b"hal")
    assert await store.sweep({kept, half}) == 1
    assert await store.sweep({kept}) == 1
    assert files(root) == [f"sha256/{kept.sha256[:2]}/{kept.sha256}"]
    assert store.total_bytes == 4


async def test_a_crash_before_verification_is_settled(root: Path) -> None:
    """All bytes there but not verified yet: the next start completes right ones and drops wrong ones."""
    first = opened(root)
    wrong = blob_of(b"right")
    for blob, arrived in ((BLOB, CONTENT), (wrong, b"wrong")):
        (root / "partial" / f"{blob.sha256}-{blob.size_bytes}").write_bytes(arrived)
        assert await first.stored_bytes(blob) == blob.size_bytes - 1
    second = opened(root)
    assert await second.stored_bytes(BLOB) == BLOB.size_bytes
    assert await second.stored_bytes(wrong) == 0
    assert second.total_bytes == BLOB.size_bytes


async def test_a_disk_without_space_is_refused_at_the_door(root: Path) -> None:
    """An upload that can't fit is refused before its first byte; the message says how much is missing."""
    store = DiskBlobStore(root, free_bytes=lambda _: 64 * 1024 * 1024 + 1000)
    store.prepare()
    with pytest.raises(ResourceExhaustedError, match="1000 bytes to spare, but 300000 bytes"):
        await upload(store, BLOB, CONTENT)
    assert files(root) == []
    small = blob_of(b"small")
    assert await upload(store, small, b"small") == 5


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The kernel refuses to let any file grow beyond this: a full disk without filling one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_fills_up_keeps_nothing_half(store: DiskBlobStore, root: Path) -> None:
    """When a write fails for space, the upload ends with RESOURCE_EXHAUSTED and frees what it took."""
    with largest_file(200_000), pytest.raises(ResourceExhaustedError) as refused:
        await upload(store, BLOB, CONTENT[:100_000], CONTENT[100_000:])
    assert refused.value.reason == "DISK_FULL"
    assert files(root) == []
    assert await upload(store, BLOB, CONTENT) == BLOB.size_bytes


async def test_last_write_is_when_bytes_came(store: DiskBlobStore) -> None:
    """The moment of the last bytes is known for incomplete and complete content."""
    assert await store.last_write(BLOB) is None
    for chunk in (CONTENT[:10], CONTENT[10:]):
        await upload(store, BLOB, chunk)
        moment = await store.last_write(BLOB)
        assert moment is not None
        assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)
