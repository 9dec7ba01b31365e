"""What the registry assigns to this worker's pool: placed versions and all that is needed to run them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from services.rpc.names import PlacementName, VersionName
from services.worker.domain.signature import Signature
from services.worker.llm.domain.engine_settings import Target

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """One file of a version's artifact."""

    path: str  # relative, with `/`
    size: int  # bytes
    sha256: str  # lower-case hex


class OversizePolicy(Enum):
    """What happens to a request of more rows than a batch may have."""

    SPLIT = "SPLIT"
    REFUSE = "REFUSE"


class BatchAxis(Enum):
    """Which axis counts the rows of a batch."""

    CHECKED = "CHECKED"  # the first, if the check at load finds rows independent
    NONE = "NONE"
    FIRST = "FIRST"  # declared: a check that finds otherwise is a failed load


@dataclass(frozen=True, slots=True)
class PaddedInput:
    """An axis of an input that is padded at its end to the longest in the batch."""

    name: str
    axis: int  # 1 or higher
    pad_value: float = 0.0
    mask: bool = False  # it masks others; padded with 0


@dataclass(frozen=True, slots=True)
class TrimmedOutput:
    """An axis of an output that is as long as an axis of a padded input."""

    name: str
    axis: int
    input: str
    input_axis: int


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """How answers are kept for equal requests."""

    max_bytes: int
    ttl: float = 0.0  # seconds; 0: until pushed out


@dataclass(frozen=True, slots=True)
class SequenceState:
    """An input that callers don't give: what an output was in the sequence's request before."""

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class SequenceLimits:
    """Requests of one sequence share state, in order."""

    states: tuple[SequenceState, ...]
    idle_timeout: float = 60.0  # seconds
    max_bytes: int = 256 * 1024**2  # of all sequences' states


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    """How a language model is run; zero and None mean the worker's defaults."""

    kv_cache_bytes: int = 0
    max_running_requests: int = 0
    max_step_tokens: int = 0
    max_queue_requests: int = 0
    context_length: int = 0  # 0: what the model was made for
    max_output_tokens: int = 0
    prefix_cache: bool = True
    max_tenant_share: float = 0.0  # of the cache; 0: all
    target: Target = Target.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a version is run; zero, empty and None mean the worker's defaults."""

    max_batch_size: int = 0
    preferred_batch_sizes: tuple[int, ...] = ()  # ascending
    max_queue_delay: float = 0.0  # seconds
    max_queue_rows: int = 0
    max_queue_bytes: int = 0
    queue_timeout: float = 0.0  # seconds; 0: the caller's deadline alone
    priority_levels: int = 0  # 0: no priorities
    default_priority: int = 0  # 0: the last level
    oversize_policy: OversizePolicy = OversizePolicy.SPLIT
    batch_axis: BatchAxis = BatchAxis.CHECKED
    padded_inputs: tuple[PaddedInput, ...] = ()
    trimmed_outputs: tuple[TrimmedOutput, ...] = ()
    instances: int = 0
    intra_op_threads: int = 0
    cpus: tuple[int, ...] = ()  # shared out between instances; empty: any
    execution_providers: tuple[str, ...] = ()
    auto_tune: bool = False
    response_cache: CacheLimits | None = None
    sequence: SequenceLimits | None = None
    generation: GenerationSettings = GenerationSettings()  # of language models


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What measuring found to be fastest; settings that say something come first."""

    intra_op_threads: int
    instances: int
    max_batch_size: int
    rows_per_second: float
    baseline_rows_per_second: float  # one instance, one thread, no batches
    machine_cpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpec:
    """An immutable version as the registry holds it."""

    name: VersionName
    digest: str  # SHA-256 (hex) over the list of files
    files: tuple[ArtifactFile, ...]
    signature: Signature
    settings: RunSettings = RunSettings()
    created_ns: int = field(default=0, compare=False)  # orders versions by age
    tuning: Tuning | None = None
    unsupported: str = ""  # why no worker of this release can run it; empty: it can
    is_language: bool = False  # it continues texts instead of computing tensors

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
