"""Finishing a version while others do something to it, on the store in memory and blobs on disk."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from services.registry.adapters.disk_blob_store import DiskBlobStore
from services.registry.adapters.memory_store import MemoryStore
from services.registry.domain.model import Format, Signature, VersionState
from services.registry.domain.version_settings import PaddedInput, VersionSettings
from services.registry.drivers.blob_reaper import BlobReaper
from services.registry.drivers.declarations import Declaration, Declarations
from services.registry.drivers.uploads import FileOffset, Uploads
from services.registry.drivers.versions import Versions
from services.registry.ports.model_inspector import StoredFile
from services.rpc.errors import AbortedError, InvalidArgumentError, NotFoundError
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
    lineage={"run": "7"},
)
OTHER_SETTINGS = replace(DECLARATION, settings=VersionSettings(max_batch_size=8))


class Meanwhile(Trusting):
    """An inspector during whose work something happens; it may find the model bad then."""

    def __init__(self) -> None:
        self.happens: Callable[[], Awaitable[object]] | None = None
        self.finds_it_bad = False

    async def inspect(self, kind: Format, files: Mapping[str, StoredFile]) -> Signature:
        if self.happens is not None:
            await self.happens()
        if self.finds_it_bad:
            raise InvalidArgumentError("no model")
        return await super().inspect(kind, files)


@dataclass(frozen=True, slots=True)
class Registry:
    """The parts of a registry that make versions."""

    clock: ManualClock
    inspector: Meanwhile
    declarations: Declarations
    versions: Versions
    uploads: Uploads

    async def declare(self, declaration: Declaration) -> None:
        self.clock.advance(1)
        await self.declarations.declare(V1, declaration)

    async def upload(self) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield CONTENT

        await self.uploads.receive(FileOffset(version=V1, path="model.onnx", offset=0), chunks())


@pytest.fixture
async def registry(tmp_path: Path) -> Registry:
    """A registry with a version that could be finished."""
    store, blobs, clock = MemoryStore(first_revision=1), DiskBlobStore(tmp_path), ManualClock()
    blobs.prepare()
    reaper, inspector = BlobReaper(store, blobs), Meanwhile()
    made = Registry(
        clock=clock,
        inspector=inspector,
        declarations=Declarations(store, reaper, clock, 1000),
        versions=Versions(store, blobs, reaper, inspector),
        uploads=Uploads(store, blobs, reaper),
    )
    await made.declare(DECLARATION)
    await made.upload()
    return made


async def test_the_same_declared_again_does_not_disturb(registry: Registry) -> None:
    """Several who push the same at the same time all find it READY."""
    registry.inspector.happens = lambda: registry.declare(DECLARATION)
    ready = await registry.versions.finish(V1)
    assert ready.state is VersionState.READY
    assert ready.outputs
    assert await registry.versions.finish(V1) == ready


async def test_other_settings_declared_meanwhile_are_not_finished_unseen(
    registry: Registry,
) -> None:
    """What was declared anew is another promise: whoever finishes is told, and may finish that."""
    registry.inspector.happens = lambda: registry.declare(OTHER_SETTINGS)
    with pytest.raises(AbortedError, match="declared anew"):
        await registry.versions.finish(V1)
    registry.inspector.happens = None
    assert (await registry.versions.finish(V1)).settings == OTHER_SETTINGS.settings


async def test_deleted_and_declared_again_is_another_version(registry: Registry) -> None:
    """Its bytes are gone, so that it never becomes READY without them."""

    async def replaced() -> None:
        await registry.versions.delete(V1, "")
        await registry.declare(DECLARATION)

    registry.inspector.happens = replaced
    with pytest.raises(AbortedError, match="declared anew"):
        await registry.versions.finish(V1)
    assert (await registry.versions.get(V1)).state is VersionState.UPLOADING


async def test_a_bad_model_is_told_as_such_though_it_was_declared_again(
    registry: Registry,
) -> None:
    """The one who finishes learns why; the one who declared it again learns it on finishing."""
    registry.inspector.happens = lambda: registry.declare(DECLARATION)
    registry.inspector.finds_it_bad = True
    with pytest.raises(InvalidArgumentError, match="no model"):
        await registry.versions.finish(V1)
    registry.inspector.happens = None
    with pytest.raises(InvalidArgumentError, match="no model"):
        await registry.versions.finish(V1)
    with pytest.raises(NotFoundError):
        await registry.versions.get(V1)


async def test_settings_that_do_not_fit_the_model_can_be_declared_anew(registry: Registry) -> None:
    """A setting that names no tensor of the model is refused by its path; the bytes stay for other settings."""
    await registry.declare(
        replace(DECLARATION, settings=VersionSettings(padded_inputs=(PaddedInput("ids", 1),)))
    )
    with pytest.raises(InvalidArgumentError, match=r"settings.padded_inputs\[0\].name: 'ids'"):
        await registry.versions.finish(V1)
    await registry.declare(OTHER_SETTINGS)
    finished = await registry.versions.finish(V1)
    assert finished.state is VersionState.READY
    assert finished.settings == OTHER_SETTINGS.settings
