"""Declarations of model versions: what a version will be, before its bytes arrive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from services.registry.domain.artifact import artifact_digest, check_files
from services.registry.domain.fields import check_tags
from services.registry.domain.format_rules import check_kind
from services.registry.domain.model import (
    ArtifactFile,
    Format,
    Model,
    ModelVersion,
    VersionState,
)
from services.registry.domain.settings_rules import check_settings
from services.registry.domain.version_settings import VersionSettings
from services.registry.drivers.blob_reaper import BlobReaper
from services.registry.ports.store import Store, Transaction
from services.rpc.clock import Clock
from services.rpc.errors import AlreadyExistsError
from services.rpc.names import VersionName
from services.rpc.violations import Violations

_FORMATS = ", ".join(f"FORMAT_{kind.value}" for kind in Format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A version as its maker declares it, unchecked."""

    format: Format | None
    files: Sequence[ArtifactFile]
    settings: VersionSettings
    lineage: Mapping[str, str]


class Declarations:
    """Takes declarations and makes UPLOADING versions of them."""

    def __init__(self, store: Store, reaper: BlobReaper, clock: Clock, max_file_bytes: int) -> None:
        self._store = store
        self._reaper = reaper
        self._clock = clock
        self._max_file_bytes = max_file_bytes

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
            return await self._store.write(work)

    def _checked(self, name: VersionName, declaration: Declaration) -> ModelVersion:
        violations = Violations()
        files = check_files(violations, declaration.files, declaration.format, self._max_file_bytes)
        check_settings(violations, declaration.settings)
        lineage = check_tags(violations, "lineage", declaration.lineage)
        if declaration.format is None:
            violations.add("format", f"is not set; allowed: {_FORMATS}")
        else:
            check_kind(violations, declaration.settings, declaration.format)
        violations.raise_if_any()
        assert declaration.format is not None
        now = self._clock.now()
        return ModelVersion(
            name=name,
            state=VersionState.UPLOADING,
            format=declaration.format,
            files=files,
            digest=artifact_digest(files),
            size_bytes=sum(file.size_bytes for file in files),
            settings=declaration.settings,
            lineage=lineage,
            create_time=now,
            declare_time=now,
        )


async def _resume(
    transaction: Transaction, known: ModelVersion, declared: ModelVersion
) -> ModelVersion:
    if known.state is not VersionState.UPLOADING or known.digest != declared.digest:
        why = "with other files" if known.digest != declared.digest else "and is READY"
        raise AlreadyExistsError(
            f"{known.name} exists already {why}; use another version id",
            metadata={"resource": str(known.name), "digest": known.digest},
        )
    return await transaction.put(replace(declared, create_time=known.create_time))
