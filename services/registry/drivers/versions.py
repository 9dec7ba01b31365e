"""Use cases of model versions: finish, list, delete."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from weakref import WeakValueDictionary

from services.registry.domain.catalog import Name
from services.registry.domain.model import (
    BlobId,
    Model,
    ModelVersion,
    Signature,
    VersionState,
)
from services.registry.domain.references import check_etag, refuse_while_used
from services.registry.domain.settings_fit import check_fit
from services.registry.drivers.blob_reaper import BlobReaper
from services.registry.drivers.lookup import endpoints_serving, existing, page
from services.registry.ports.blob_store import BlobStore
from services.registry.ports.model_inspector import ModelInspector, StoredFile
from services.registry.ports.store import Store, Transaction
from services.rpc.completion import to_completion
from services.rpc.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from services.rpc.names import ModelName, VersionName
from services.rpc.page import Page, PageRequest

_LISTED = 10  # files that an error names


def _is_same_declaration(now: ModelVersion, version: ModelVersion) -> bool:
    """Whether nothing was declared since but the same again; one that was deleted between has another create time."""
    return replace(now, declare_time=version.declare_time, etag=version.etag) == version


class Versions:
    """Takes declared versions to READY, and away again."""

    def __init__(
        self, store: Store, blobs: BlobStore, reaper: BlobReaper, inspector: ModelInspector
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._reaper = reaper
        self._inspector = inspector
        self._finishing: WeakValueDictionary[VersionName, asyncio.Lock] = WeakValueDictionary()

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
            signature = await self._inspector.inspect(version.format, stored)
        except InvalidArgumentError:
            # Declared anew or deleted meanwhile, it's left to whoever did that.
            with suppress(AbortedError, NotFoundError):
                await self.delete_unfinished(name, version.etag)
            raise
        # What doesn't fit leaves the bytes where they are: the same files are declared anew with other settings.
        check_fit(version.settings, signature)
        return await self._make_ready(version, signature)

    async def _check_complete(self, version: ModelVersion) -> None:
        missing = []
        for file in version.files:
            if await self._blobs.is_complete(file.blob):
                continue
            if file.size_bytes == 0:
                async with self._blobs.open_writer(file.blob):
                    continue  # nothing to upload: opening completes it
            arrived = await self._blobs.stored_bytes(file.blob)
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
            if not _is_same_declaration(now, version):
                raise AbortedError(
                    f"{version.name} was declared anew while it was being finished; finish it again",
                    metadata={"resource": str(version.name), "etag": now.etag},
                )
            return await transaction.put(
                replace(
                    now,
                    state=VersionState.READY,
                    inputs=signature.inputs,
                    outputs=signature.outputs,
                    language_model=signature.language_model,
                )
            )

        return await self._store.write(work)

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
