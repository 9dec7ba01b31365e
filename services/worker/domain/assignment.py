"""What the registry assigns to this worker's pool: placed versions and all that is needed to run them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from services.rpc.names import PlacementName, VersionName
from services.worker.domain.signature import Signature

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """One file of a version's artifact."""

    path: str  # relative, with `/`
    size: int  # bytes
    sha256: str  # lower-case hex


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a version is run; zero and empty mean the worker's defaults."""

    max_batch_size: int = 0
    max_queue_delay: float = 0.0  # seconds
    intra_op_threads: int = 0
    execution_providers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpec:
    """An immutable version as the registry holds it."""

    name: VersionName
    digest: str  # SHA-256 (hex) over the list of files
    files: tuple[ArtifactFile, ...]
    signature: Signature
    settings: RunSettings = RunSettings()
    created_ns: int = field(default=0, compare=False)  # orders versions by age
    unsupported: str = ""  # why no worker of this release can run it; empty: it can

    @property
    def onnx_path(self) -> str | None:
        """The graph's file."""
        return next((file.path for file in self.files if file.path.endswith(".onnx")), None)


@dataclass(frozen=True, slots=True)
class PlacementChange:
    """A placement was made (`incarnation` differs each time) or removed (None)."""

    name: PlacementName
    incarnation: str | None


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A version was created or updated, or deleted (`spec` None)."""

    name: VersionName
    spec: VersionSpec | None


Change = PlacementChange | VersionChange


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Some changes in the order of their revisions."""

    changes: Sequence[Change]
    revision: int
    synced: bool  # everything up to the revision has been sent


@dataclass(frozen=True, slots=True)
class Assignment:
    """A version that this pool is to have."""

    spec: VersionSpec
    incarnation: str  # of the placement


@dataclass(slots=True)
class AssignmentTable:
    """Placements of one pool joined with their versions."""

    pool: str
    revision: int = 0
    _placed: dict[VersionName, str] = field(default_factory=dict)
    _specs: dict[VersionName, VersionSpec] = field(default_factory=dict)

    def apply(self, batch: ChangeBatch) -> None:
        """Take changes over."""
        for change in batch.changes:
            if isinstance(change, VersionChange):
                _put(self._specs, change.name, change.spec)
            elif change.name.pool == self.pool:
                _put(self._placed, change.name.version, change.incarnation)
        if batch.synced:  # before, not everything up to the revision is here
            self.revision = batch.revision

    def assigned(self) -> dict[VersionName, Assignment]:
        """What is placed here and known; a placement whose version has not arrived yet waits for it."""
        return {
            name: Assignment(self._specs[name], incarnation)
            for name, incarnation in self._placed.items()
            if name in self._specs
        }


def _put(table: dict[VersionName, V], key: VersionName, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
