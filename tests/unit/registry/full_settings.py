"""Settings and a tuning in which no field has its default."""

from services.registry.domain.tuning import VersionTuning
from services.registry.domain.version_settings import (
    BatchAxis,
    GenerationSettings,
    GenerationTarget,
    OversizePolicy,
    PaddedInput,
    PrefixCacheMode,
    ResponseCacheSettings,
    SequenceSettings,
    SequenceState,
    TrimmedOutput,
    TuningMode,
    VersionSettings,
)
from tests.unit.registry import records

# Some don't go together; their rules are tested elsewhere.
FULL_SETTINGS = VersionSettings(
    max_batch_size=32,
    max_queue_delay_us=100,
    intra_op_threads=2,
    execution_providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
    preferred_batch_sizes=(8, 16, 32),
    max_queue_rows=1000,
    max_queue_bytes=1 << 34,
    queue_timeout_us=1,
    priority_levels=3,
    default_priority=2,
    oversize_policy=OversizePolicy.REFUSE,
    batch_axis=BatchAxis.FIRST,
    padded_inputs=(PaddedInput("ids", 1, 0.5), PaddedInput("mask", 1, mask=True)),
    trimmed_outputs=(TrimmedOutput("states", 1, "ids", 1),),
    instances=2,
    cpus=(0, 1),
    tuning_mode=TuningMode.AUTO,
    response_cache=ResponseCacheSettings(max_bytes=1, ttl_ms=5),
    sequence=SequenceSettings((SequenceState("state", "next"),), 100, 200),
    generation=GenerationSettings(
        kv_cache_bytes=1 << 30,
        max_running_requests=8,
        max_step_tokens=64,
        max_queue_requests=100,
        context_length=2048,
        max_output_tokens=512,
        prefix_cache=PrefixCacheMode.OFF,
        max_tenant_percent=50,
        target=GenerationTarget.NATIVE,
    ),
)
FULL_TUNING = VersionTuning(
    intra_op_threads=1,
    instances=2,
    max_batch_size=16,
    rows_per_second=1234.5,
    baseline_rows_per_second=0.1,
    machine_cpus=2,
    measure_time=records.NOW,
)
