"""Settings and tuning of versions between messages and the domain."""

from collections.abc import Mapping
from datetime import datetime

from inferplane.registry.v1 import model_pb2 as pb

from services.registry.domain.tuning import VersionTuning
from services.registry.domain.version_settings import (
    BatchAxis,
    OversizePolicy,
    PaddedInput,
    ResponseCacheSettings,
    SequenceSettings,
    SequenceState,
    TrimmedOutput,
    TuningMode,
    VersionSettings,
)
from services.registry.servicers.enum_messages import read_enum
from services.registry.servicers.generation_messages import generation_message, read_generation
from services.rpc.times import moment, timestamp
from services.rpc.violations import Violations

_OVERSIZE: Mapping[OversizePolicy | None, pb.OversizePolicy.ValueType] = {
    None: pb.OVERSIZE_POLICY_UNSPECIFIED,
    OversizePolicy.SPLIT: pb.OVERSIZE_POLICY_SPLIT,
    OversizePolicy.REFUSE: pb.OVERSIZE_POLICY_REFUSE,
}
_AXIS: Mapping[BatchAxis | None, pb.BatchAxis.ValueType] = {
    None: pb.BATCH_AXIS_UNSPECIFIED,
    BatchAxis.NONE: pb.BATCH_AXIS_NONE,
    BatchAxis.FIRST: pb.BATCH_AXIS_FIRST,
}
_TUNING: Mapping[TuningMode | None, pb.TuningMode.ValueType] = {
    None: pb.TUNING_MODE_UNSPECIFIED,
    TuningMode.OFF: pb.TUNING_MODE_OFF,
    TuningMode.AUTO: pb.TUNING_MODE_AUTO,
}


def settings_message(settings: VersionSettings) -> pb.VersionSettings:
    """The settings as a message."""
    message = pb.VersionSettings(
        max_batch_size=settings.max_batch_size,
        max_queue_delay_us=settings.max_queue_delay_us,
        intra_op_threads=settings.intra_op_threads,
        execution_providers=settings.execution_providers,
        preferred_batch_sizes=settings.preferred_batch_sizes,
        max_queue_rows=settings.max_queue_rows,
        max_queue_bytes=settings.max_queue_bytes,
        queue_timeout_us=settings.queue_timeout_us,
        priority_levels=settings.priority_levels,
        default_priority=settings.default_priority,
        oversize_policy=_OVERSIZE[settings.oversize_policy],
        batch_axis=_AXIS[settings.batch_axis],
        padded_inputs=[
            pb.PaddedInput(name=p.name, axis=p.axis, pad_value=p.pad_value, mask=p.mask)
            for p in settings.padded_inputs
        ],
        trimmed_outputs=[
            pb.TrimmedOutput(name=t.name, axis=t.axis, input=t.input, input_axis=t.input_axis)
            for t in settings.trimmed_outputs
        ],
        instances=settings.instances,
        cpus=settings.cpus,
        tuning_mode=_TUNING[settings.tuning_mode],
    )
    if settings.response_cache is not None:
        message.response_cache.max_bytes = settings.response_cache.max_bytes
        message.response_cache.ttl_ms = settings.response_cache.ttl_ms
        message.response_cache.SetInParent()
    if settings.sequence is not None:
        message.sequence.CopyFrom(_sequence_message(settings.sequence))
    if settings.generation is not None:
        message.generation.CopyFrom(generation_message(settings.generation))
    return message


def _sequence_message(sequence: SequenceSettings) -> pb.SequenceSettings:
    return pb.SequenceSettings(
        states=[
            pb.SequenceSettings.State(input=state.input, output=state.output)
            for state in sequence.states
        ],
        idle_timeout_ms=sequence.idle_timeout_ms,
        max_bytes=sequence.max_bytes,
    )


def read_settings(message: pb.VersionSettings) -> VersionSettings:
    """The settings as the caller wrote them; InvalidArgumentError for values of enums that are none."""
    violations = Violations()
    settings = VersionSettings(
        max_batch_size=message.max_batch_size,
        max_queue_delay_us=message.max_queue_delay_us,
        intra_op_threads=message.intra_op_threads,
        execution_providers=tuple(message.execution_providers),
        preferred_batch_sizes=tuple(message.preferred_batch_sizes),
        max_queue_rows=message.max_queue_rows,
        max_queue_bytes=message.max_queue_bytes,
        queue_timeout_us=message.queue_timeout_us,
        priority_levels=message.priority_levels,
        default_priority=message.default_priority,
        oversize_policy=read_enum(
            violations, "oversize_policy", message.oversize_policy, _OVERSIZE
        ),
        batch_axis=read_enum(violations, "batch_axis", message.batch_axis, _AXIS),
        padded_inputs=tuple(
            PaddedInput(p.name, p.axis, p.pad_value, p.mask) for p in message.padded_inputs
        ),
        trimmed_outputs=tuple(
            TrimmedOutput(t.name, t.axis, t.input, t.input_axis) for t in message.trimmed_outputs
        ),
        instances=message.instances,
        cpus=tuple(message.cpus),
        tuning_mode=read_enum(violations, "tuning_mode", message.tuning_mode, _TUNING),
        response_cache=_read_cache(message),
        sequence=_read_sequence(message),
        generation=read_generation(violations, message),
    )
    violations.raise_if_any()
    return settings


def _read_cache(message: pb.VersionSettings) -> ResponseCacheSettings | None:
    if not message.HasField("response_cache"):
        return None
    cache = message.response_cache
    return ResponseCacheSettings(max_bytes=cache.max_bytes, ttl_ms=cache.ttl_ms)


def _read_sequence(message: pb.VersionSettings) -> SequenceSettings | None:
    if not message.HasField("sequence"):
        return None
    sequence = message.sequence
    return SequenceSettings(
        states=tuple(SequenceState(state.input, state.output) for state in sequence.states),
        idle_timeout_ms=sequence.idle_timeout_ms,
        max_bytes=sequence.max_bytes,
    )


def tuning_message(tuning: VersionTuning) -> pb.VersionTuning:
    """The tuning as a message."""
    return pb.VersionTuning(
        intra_op_threads=tuning.intra_op_threads,
        instances=tuning.instances,
        max_batch_size=tuning.max_batch_size,
        rows_per_second=tuning.rows_per_second,
        baseline_rows_per_second=tuning.baseline_rows_per_second,
        machine_cpus=tuning.machine_cpus,
        measure_time=timestamp(tuning.measure_time),
    )


def read_tuning(message: pb.VersionTuning, now: datetime) -> VersionTuning:
    """The tuning that a worker reports, unchecked; measured now if it doesn't say when."""
    return VersionTuning(
        intra_op_threads=message.intra_op_threads,
        instances=message.instances,
        max_batch_size=message.max_batch_size,
        rows_per_second=message.rows_per_second,
        baseline_rows_per_second=message.baseline_rows_per_second,
        machine_cpus=message.machine_cpus,
        measure_time=(
            moment("tuning.measure_time", message.measure_time)
            if message.HasField("measure_time")
            else now
        ),
    )
