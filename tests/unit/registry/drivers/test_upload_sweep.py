"""Uploads that were given up, on the store in memory, blobs on disk and a clock moved by hand."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.registry.adapters.disk_blob_store import DiskBlobStore
from services.registry.adapters.memory_store import MemoryStore
from services.registry.domain.model import (
    Format,
    ModelVersion,
    VersionState,
)
from services.registry.domain.version_settings import VersionSettings
from services.registry.drivers.blob_reaper import BlobReaper
from services.registry.drivers.declarations import Declaration, Declarations
from services.registry.drivers.upload_sweep import UploadSweep
from services.registry.drivers.uploads import FileOffset, Uploads
from services.registry.drivers.versions import Versions
from services.rpc.errors import NotFoundError
from services.rpc.names import VersionName
from tests.manual_clock import ManualClock
from tests.unit.registry import records
from tests.unit.registry.trusting_inspector import Trusting

V1 = VersionName("m", "1")
CONTENT = b"0123456789"
DECLARATION = Declaration(
    format=Format.ONNX,
    files=[records.file("model.onnx", CONTENT)],
    settings=VersionSettings(),
    lineage={},
)


@dataclass(frozen=True, slots=True)
class Registry:
    """The parts of a registry that uploads touch."""

    store: MemoryStore
    blobs: DiskBlobStore
    clock: ManualClock
    declarations: Declarations
    versions: Versions
    uploads: Uploads
    sweep: UploadSweep

    async def upload(self, name: VersionName, offset: int, content: bytes) -> int:
        async def chunks() -> AsyncIterator[bytes]:
            yield content

        start = FileOffset(version=name, path="model.onnx", offset=offset)
        return (await self.uploads.receive(start, chunks())).stored_bytes

    async def exists(self, name: VersionName) -> bool:
        return await self.store.read(lambda view: view.get(ModelVersion, name)) is not None


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    store, blobs, clock = MemoryStore(first_revision=1), DiskBlobStore(tmp_path), ManualClock()
    # Files carry the machine's time, so the clock begins there.
    clock.set_wall(datetime.now(UTC))
    blobs.prepare()
    reaper = BlobReaper(store, blobs)
    versions = Versions(store, blobs, reaper, Trusting())
    return Registry(
        store=store,
        blobs=blobs,
        clock=clock,
        declarations=Declarations(store, reaper, clock, 1000),
        versions=versions,
        uploads=Uploads(store, blobs, reaper),
        sweep=UploadSweep(store, blobs, versions, clock, timedelta(hours=1)),
    )


async def test_an_upload_without_activity_is_removed(registry: Registry) -> None:
    """Kept until its time is over, then version and bytes are gone."""
    await registry.declarations.declare(V1, DECLARATION)
    await registry.upload(V1, 0, CONTENT[:5])
    registry.clock.advance(3590)
    left = await registry.sweep.sweep()
    assert left is not None
    assert timedelta() < left <= timedelta(seconds=11)
    registry.clock.advance(20)
    assert await registry.sweep.sweep() is None
    assert not await registry.exists(V1)
    assert await registry.blobs.stored_bytes(DECLARATION.files[0].blob) == 0


async def test_declaring_again_is_activity(registry: Registry) -> None:
    """A version that is declared again has its whole time again, and keeps its bytes and its age."""
    first = await registry.declarations.declare(V1, DECLARATION)
    registry.clock.advance(3000)
    again = await registry.declarations.declare(V1, DECLARATION)
    assert again.create_time == first.create_time
    registry.clock.advance(3000)
    assert await registry.sweep.sweep() == timedelta(seconds=600)


async def test_a_finished_version_is_never_removed(registry: Registry) -> None:
    """READY versions have no end."""
    await registry.declarations.declare(V1, DECLARATION)
    await registry.upload(V1, 0, CONTENT)
    assert (await registry.versions.finish(V1)).state is VersionState.READY
    registry.clock.advance(10_000_000)
    assert await registry.sweep.sweep() is None
    assert await registry.exists(V1)


async def test_shared_content_outlives_an_upload(registry: Registry) -> None:
    """Bytes that another version has stay when the upload that brought them is removed."""
    await registry.declarations.declare(V1, DECLARATION)
    await registry.upload(V1, 0, CONTENT)
    v2 = VersionName("m", "2")
    registry.clock.advance(3000)
    await registry.declarations.declare(v2, DECLARATION)
    registry.clock.advance(3000)
    await registry.sweep.sweep()
    assert not await registry.exists(V1)
    assert (await registry.versions.finish(v2)).state is VersionState.READY


async def test_the_sweep_runs_by_itself(registry: Registry) -> None:
    """It sleeps while there is no upload, wakes for one, and removes it when its time is over."""
    running = asyncio.create_task(registry.sweep.run())
    await registry.declarations.declare(V1, DECLARATION)
    revision = registry.store.revision
    async with asyncio.timeout(10):
        while registry.store.revision == revision:
            registry.clock.advance(600)
            await registry.exists(V1)
            await asyncio.sleep(0)
    assert not await registry.exists(V1)
    running.cancel()
    await asyncio.wait([running])


async def test_an_upload_to_a_version_that_goes_meanwhile(registry: Registry) -> None:
    """A version deleted while its bytes arrive takes them with it; the upload is told."""
    await registry.declarations.declare(V1, DECLARATION)

    async def chunks() -> AsyncIterator[bytes]:
        yield CONTENT[:5]
        await registry.versions.delete(V1, "")
        yield CONTENT[5:]

    start = FileOffset(version=V1, path="model.onnx", offset=0)
    with pytest.raises(Exception, match="deleted during its upload"):
        await registry.uploads.receive(start, chunks())
    with pytest.raises(NotFoundError):
        await registry.upload(V1, 0, CONTENT)
    assert await registry.blobs.stored_bytes(DECLARATION.files[0].blob) == 0
    assert list((registry.blobs.path(DECLARATION.files[0].blob).parents[2]).rglob("*-10")) == []


async def test_finishing_twice_at_once_is_finishing(registry: Registry) -> None:
    """Two finishes at the same time both see the READY version."""
    await registry.declarations.declare(V1, DECLARATION)
    await registry.upload(V1, 0, CONTENT)
    one, two = await asyncio.gather(registry.versions.finish(V1), registry.versions.finish(V1))
    assert one == two == replace(one, state=VersionState.READY)
