"""Settings of a version: how it is run. Zero, empty and None mean the worker's defaults."""

from dataclasses import dataclass
from enum import Enum


class OversizePolicy(Enum):
    """What happens to a request of more rows than a batch may have."""

    SPLIT = "SPLIT"
    REFUSE = "REFUSE"


class BatchAxis(Enum):
    """Which axis counts the rows of a batch."""

    NONE = "NONE"
    FIRST = "FIRST"


class TuningMode(Enum):
    """Whether threads, instances and batch size are found by measuring."""

    OFF = "OFF"
    AUTO = "AUTO"


class PrefixCacheMode(Enum):
    """Whether prompts' computed blocks are kept."""

    ON = "ON"
    OFF = "OFF"


class GenerationTarget(Enum):
    """What the graph of a language model is made for."""

    NATIVE = "NATIVE"
    PORTABLE = "PORTABLE"
    CUDA = "CUDA"


@dataclass(frozen=True, slots=True)
class PaddedInput:
    """An axis of an input that is padded at its end, to the longest in the batch."""

    name: str
    axis: int
    pad_value: float = 0.0
    mask: bool = False  # it masks others


@dataclass(frozen=True, slots=True)
class TrimmedOutput:
    """An axis of an output that is as long as an axis of a padded input."""

    name: str
    axis: int
    input: str
    input_axis: int


@dataclass(frozen=True, slots=True)
class ResponseCacheSettings:
    """How answers are kept for equal requests."""

    max_bytes: int
    ttl_ms: int = 0  # 0: until pushed out


@dataclass(frozen=True, slots=True)
class SequenceState:
    """An input that callers don't give, and the output that it was in the request before."""

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class SequenceSettings:
    """How requests of one sequence share state."""

    states: tuple[SequenceState, ...] = ()
    idle_timeout_ms: int = 0
    max_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    """How a language model is run."""

    kv_cache_bytes: int = 0
    max_running_requests: int = 0
    max_step_tokens: int = 0
    max_queue_requests: int = 0
    context_length: int = 0  # tokens of prompt and answer together
    max_output_tokens: int = 0  # of all answers of one request
    prefix_cache: PrefixCacheMode | None = None
    max_tenant_percent: int = 0
    target: GenerationTarget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSettings:
    """How a version is run."""

    max_batch_size: int = 0  # rows
    max_queue_delay_us: int = 0
    intra_op_threads: int = 0
    execution_providers: tuple[str, ...] = ()
    preferred_batch_sizes: tuple[int, ...] = ()  # rows
    max_queue_rows: int = 0
    max_queue_bytes: int = 0
    queue_timeout_us: int = 0
    priority_levels: int = 0
    default_priority: int = 0
    oversize_policy: OversizePolicy | None = None
    batch_axis: BatchAxis | None = None
    padded_inputs: tuple[PaddedInput, ...] = ()
    trimmed_outputs: tuple[TrimmedOutput, ...] = ()
    instances: int = 0
    cpus: tuple[int, ...] = ()
    tuning_mode: TuningMode | None = None
    response_cache: ResponseCacheSettings | None = None
    sequence: SequenceSettings | None = None
    generation: GenerationSettings | None = None  # of language models only
