"""Use cases of model versions: declare, finish, list, delete."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from weakref import WeakValueDictionary

from services.registry.domain.artifact import (
    artifact_digest,
    check_files,
    check_settings,
    model_file,
)
from services.registry.domain.catalog import Name
from services.registry.domain.fields import check_tags
from services.registry.domain.model import (
    ArtifactFile,
    BlobId,
    Format,
    Model,
    ModelVersion,
    Signature,
    VersionSettings,
    VersionState,
)
from services.registry.domain.page import Page, PageRequest
from services.registry.domain.references import check_etag, refuse_while_used
from services.registry.domain.violations import Violations
from services.registry.drivers.blob_reaper import BlobReaper
from services.registry.drivers.completion import to_completion
from services.registry.drivers.lookup import endpoints_serving, existing, page
from services.registry.ports.blob_store import BlobStore
from services.registry.ports.clock import Clock
from services.registry.ports.model_inspector import ModelInspector, StoredFile
from services.registry.ports.store import Store, Transaction
from services.rpc.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
)
from services.rpc.names import ModelName, VersionName

_LISTED = 10  # files that an error names


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A version as its maker declares it, unchecked."""

    format: Format | None
    files: Sequence[ArtifactFile]
    settings: VersionSettings
    lineage: Mapping[str, str]


class Versions:
    """Takes versions from their declaration to READY, and away again."""

    def __init__(
        self,
        *,
        store: Store,
        blobs: BlobStore,
        reaper: BlobReaper,
        inspector: ModelInspector,
        clock: Clock,
        max_file_bytes: int,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._reaper = reaper
        self._inspector = inspector
        self._clock = clock
        self._max_file_bytes = max_file_bytes
        self._finishing: WeakValueDictionary[VersionName, asyncio.Lock] = WeakValueDictionary()
        self._declared: dict[VersionName, datetime] = {}  # again, without a change

    async def declare(self, name: VersionName, declaration: Declaration) -> ModelVersion:
        """Create an UPLOADING version, and its model if need be; the same files again resume it."""
        version = self._checked(name, declaration)

        async def work(transaction: Transaction) -> ModelVersion:
            known = await transaction.get(ModelVersion, name)
            if known is not None:
                return await _resume(transaction, known, version)
            if await transaction.get(Model, name.parent) is None:
                now = version.create_time
                await transaction.put(Model(name=name.parent, create_time=now, update_time=now))
            return await transaction.put(version)

        async with self._reaper.guard:
            declared = await self._store.write(work)
        self._declared[name] = version.create_time
        return declared

    def _checked(self, name: VersionName, declaration: Declaration) -> ModelVersion:
        violations = Violations()
        files = check_files(violations, declaration.files, declaration.format, self._max_file_bytes)
        check_settings(violations, declaration.settings)
        lineage = check_tags(violations, "lineage", declaration.lineage)
        if declaration.format is None:
            violations.add("format", "is not set; allowed: FORMAT_ONNX")
        violations.raise_if_any()
        assert declaration.format is not None
        return ModelVersion(
            name=name,
            state=VersionState.UPLOADING,
            format=declaration.format,
            files=files,
            digest=artifact_digest(files),
            size_bytes=sum(file.size_bytes for file in files),
            settings=declaration.settings,
            lineage=lineage,
            create_time=self._clock.now(),
        )

    async def finish(self, name: VersionName) -> ModelVersion:
        """Make a complete version READY; remove one whose artifact is no valid model."""
        async with self._finishing.setdefault(name, asyncio.Lock()):
            return await self._finish(name)

    async def _finish(self, name: VersionName) -> ModelVersion:
        version = await self.get(name)
        if version.state is VersionState.READY:
            return version
        await self._check_complete(version)
        stored = {
            file.path: StoredFile(self._blobs.path(file.blob), file.size_bytes)
            for file in version.files
        }
        try:
            signature = await self._inspector.inspect(model_file(version.files).path, stored)
        except InvalidArgumentError:
            await self.delete_unfinished(name, version.etag)
            raise
        return await self._make_ready(version, signature)

    async def _check_complete(self, version: ModelVersion) -> None:
        missing = []
        for file in version.files:
            if file.size_bytes == 0:
                async with self._blobs.open_writer(file.blob):
                    continue  # nothing to upload: opening completes it
            arrived = await self._blobs.stored_bytes(file.blob)
            if arrived != file.size_bytes:
                missing.append(f"{file.path} ({arrived} of {file.size_bytes} bytes)")
        if missing:
            listed = ", ".join(missing[:_LISTED])
            more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
            raise FailedPreconditionError(
                f"{version.name} is incomplete: {listed}{more}; upload the rest first",
                reason="ARTIFACT_INCOMPLETE",
                metadata={"resource": str(version.name), "files": listed},
            )

    async def _make_ready(self, version: ModelVersion, signature: Signature) -> ModelVersion:
        async def work(transaction: Transaction) -> ModelVersion:
            now = await existing(transaction, ModelVersion, version.name)
            if now.etag != version.etag:
                raise AbortedError(
                    f"{version.name} was declared anew while it was being finished; finish it again",
                    metadata={"resource": str(version.name), "etag": now.etag},
                )
            return await transaction.put(
                replace(
                    version,
                    state=VersionState.READY,
                    inputs=signature.inputs,
                    outputs=signature.outputs,
                )
            )

        ready = await self._store.write(work)
        self._declared.pop(version.name, None)
        return ready

    async def get(self, name: VersionName) -> ModelVersion:
        return await self._store.read(lambda view: existing(view, ModelVersion, name))

    async def list(self, parent: ModelName | None, request: PageRequest) -> Page[ModelVersion]:
        """Versions of one model, or of all."""
        if parent is not None:
            await self._store.read(lambda view: existing(view, Model, parent))
        return await page(self._store, ModelVersion, request, parent)

    async def delete(self, name: VersionName, etag: str) -> None:
        """Delete a version and the contents that only it has, unless something needs it."""
        await to_completion(self._delete(name, lambda version: check_etag(version, etag)))

    async def delete_unfinished(self, name: VersionName, etag: str) -> None:
        """Delete an UPLOADING version if it is still as it was."""

        def check(version: ModelVersion) -> None:
            if version.state is not VersionState.UPLOADING:
                raise AbortedError(f"{name} is READY by now", reason="VERSION_READY")
            check_etag(version, etag)

        await to_completion(self._delete(name, check))

    async def _delete(self, name: VersionName, check: Callable[[ModelVersion], None]) -> None:
        async def work(transaction: Transaction) -> list[BlobId]:
            version = await existing(transaction, ModelVersion, name)
            check(version)
            users: list[Name] = [record.name for record in await transaction.referrers(name)]
            users += [endpoint.name for endpoint in await endpoints_serving(transaction, name)]
            refuse_while_used(name, users)
            await transaction.delete(name)
            return [file.blob for file in version.files]

        async with self._reaper.guard:
            await self._reaper.remove_unused(await self._store.write(work))
        self._declared.pop(name, None)

    async def last_activity(self, version: ModelVersion) -> datetime:
        """When a version was declared, or bytes of it arrived last."""
        moments = [self._declared.get(version.name, version.create_time)]
        for file in version.files:
            moment = await self._blobs.last_write(file.blob)
            if moment is not None:
                moments.append(moment)
        return max(moments)


async def _resume(
    transaction: Transaction, known: ModelVersion, declared: ModelVersion
) -> ModelVersion:
    if known.state is not VersionState.UPLOADING or known.digest != declared.digest:
        why = "with other files" if known.digest != declared.digest else "and is READY"
        raise AlreadyExistsError(
            f"{known.name} exists already {why}; use another version id",
            metadata={"resource": str(known.name), "digest": known.digest},
        )
    resumed = replace(declared, create_time=known.create_time, etag=known.etag)
    return known if resumed == known else await transaction.put(resumed)
