"""How a version is run, out of the registry's message: units and defaults as the worker's values have them."""

from collections.abc import Mapping

from inferplane.registry.v1 import model_pb2

from services.worker.domain.assignment import (
    BatchAxis,
    CacheLimits,
    GenerationSettings,
    OversizePolicy,
    PaddedInput,
    RunSettings,
    SequenceLimits,
    SequenceState,
    TrimmedOutput,
    Tuning,
)
from services.worker.llm.domain.engine_settings import Target

_MICROSECONDS = 1e6  # in a second
_MILLISECONDS = 1e3
# Values that are not here (unspecified, or of a newer release) mean the default.
_OVERSIZE: Mapping[int, OversizePolicy] = {
    model_pb2.OVERSIZE_POLICY_SPLIT: OversizePolicy.SPLIT,
    model_pb2.OVERSIZE_POLICY_REFUSE: OversizePolicy.REFUSE,
}
_AXIS: Mapping[int, BatchAxis] = {
    model_pb2.BATCH_AXIS_NONE: BatchAxis.NONE,
    model_pb2.BATCH_AXIS_FIRST: BatchAxis.FIRST,
}
_TARGET: Mapping[int, Target] = {
    model_pb2.GENERATION_TARGET_NATIVE: Target.NATIVE,
    model_pb2.GENERATION_TARGET_PORTABLE: Target.PORTABLE,
    model_pb2.GENERATION_TARGET_CUDA: Target.CUDA,
}
_PERCENT = 100


def run_settings(version: model_pb2.ModelVersion) -> RunSettings:
    """The version's settings. Measuring is wanted by them, or because somebody asked for it."""
    given = version.settings
    return RunSettings(
        max_batch_size=given.max_batch_size,
        preferred_batch_sizes=tuple(given.preferred_batch_sizes),
        max_queue_delay=given.max_queue_delay_us / _MICROSECONDS,
        max_queue_rows=given.max_queue_rows,
        max_queue_bytes=given.max_queue_bytes,
        queue_timeout=given.queue_timeout_us / _MICROSECONDS,
        priority_levels=given.priority_levels,
        default_priority=given.default_priority,
        oversize_policy=_OVERSIZE.get(given.oversize_policy, OversizePolicy.SPLIT),
        batch_axis=_AXIS.get(given.batch_axis, BatchAxis.CHECKED),
        padded_inputs=tuple(
            PaddedInput(p.name, p.axis, p.pad_value, p.mask) for p in given.padded_inputs
        ),
        trimmed_outputs=tuple(
            TrimmedOutput(t.name, t.axis, t.input, t.input_axis) for t in given.trimmed_outputs
        ),
        instances=given.instances,
        intra_op_threads=given.intra_op_threads,
        cpus=tuple(given.cpus),
        execution_providers=tuple(given.execution_providers),
        auto_tune=given.tuning_mode == model_pb2.TUNING_MODE_AUTO or version.measuring_wanted,
        response_cache=_cache(given),
        sequence=_sequence(given),
        generation=_generation(given.generation),
    )


def _generation(given: model_pb2.GenerationSettings) -> GenerationSettings:
    return GenerationSettings(
        kv_cache_bytes=given.kv_cache_bytes,
        max_running_requests=given.max_running_requests,
        max_step_tokens=given.max_step_tokens,
        max_queue_requests=given.max_queue_requests,
        context_length=given.context_length,
        max_output_tokens=given.max_output_tokens,
        prefix_cache=given.prefix_cache != model_pb2.PREFIX_CACHE_MODE_OFF,
        max_tenant_share=given.max_tenant_percent / _PERCENT,
        target=_TARGET.get(given.target, Target.AUTO),
    )


def _cache(given: model_pb2.VersionSettings) -> CacheLimits | None:
    if not given.HasField("response_cache"):
        return None
    cache = given.response_cache
    return CacheLimits(max_bytes=cache.max_bytes, ttl=cache.ttl_ms / _MILLISECONDS)


def _sequence(given: model_pb2.VersionSettings) -> SequenceLimits | None:
    if not given.HasField("sequence"):
        return None
    sequence = given.sequence
    states = tuple(SequenceState(state.input, state.output) for state in sequence.states)
    defaults = SequenceLimits(states)
    return SequenceLimits(
        states,
        idle_timeout=sequence.idle_timeout_ms / _MILLISECONDS or defaults.idle_timeout,
        max_bytes=sequence.max_bytes or defaults.max_bytes,
    )


def tuning(version: model_pb2.ModelVersion) -> Tuning | None:
    """What measuring found of the version; None if nothing was measured yet."""
    if not version.HasField("tuning"):
        return None
    found = version.tuning
    return Tuning(
        intra_op_threads=found.intra_op_threads,
        instances=found.instances,
        max_batch_size=found.max_batch_size,
        rows_per_second=found.rows_per_second,
        baseline_rows_per_second=found.baseline_rows_per_second,
        machine_cpus=found.machine_cpus,
    )
