"""Settings of a version from the registry's message."""

import dataclasses

from inferplane.registry.v1 import model_pb2 as pb

from services.worker.adapters.run_settings import run_settings, tuning
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

FULL = pb.VersionSettings(
    max_batch_size=32,
    preferred_batch_sizes=[8, 16],
    max_queue_delay_us=1500,
    max_queue_rows=1000,
    max_queue_bytes=1 << 33,
    queue_timeout_us=250_000,
    priority_levels=3,
    default_priority=2,
    oversize_policy=pb.OVERSIZE_POLICY_REFUSE,
    batch_axis=pb.BATCH_AXIS_FIRST,
    padded_inputs=[
        pb.PaddedInput(name="ids", axis=1, pad_value=-1),
        pb.PaddedInput(name="mask", axis=1, mask=True),
    ],
    trimmed_outputs=[pb.TrimmedOutput(name="states", axis=2, input="ids", input_axis=1)],
    instances=2,
    intra_op_threads=1,
    cpus=[0, 1],
    execution_providers=["CPUExecutionProvider"],
    tuning_mode=pb.TUNING_MODE_AUTO,
    response_cache=pb.ResponseCacheSettings(max_bytes=1000, ttl_ms=1500),
    sequence=pb.SequenceSettings(
        states=[pb.SequenceSettings.State(input="state", output="next")],
        idle_timeout_ms=500,
        max_bytes=99,
    ),
    generation=pb.GenerationSettings(
        kv_cache_bytes=1 << 30,
        max_running_requests=16,
        max_step_tokens=256,
        max_queue_requests=100,
        context_length=2048,
        max_output_tokens=4096,
        prefix_cache=pb.PREFIX_CACHE_MODE_OFF,
        max_tenant_percent=25,
        target=pb.GENERATION_TARGET_PORTABLE,
    ),
)


def test_every_setting_arrives() -> None:
    """No field of the message is left out, and times are in seconds."""
    assert {field.name for field in pb.VersionSettings.DESCRIPTOR.fields} == {
        field.name for field, _ in FULL.ListFields()
    }
    found = run_settings(pb.ModelVersion(settings=FULL))
    assert found == RunSettings(
        max_batch_size=32,
        preferred_batch_sizes=(8, 16),
        max_queue_delay=0.0015,
        max_queue_rows=1000,
        max_queue_bytes=1 << 33,
        queue_timeout=0.25,
        priority_levels=3,
        default_priority=2,
        oversize_policy=OversizePolicy.REFUSE,
        batch_axis=BatchAxis.FIRST,
        padded_inputs=(PaddedInput("ids", 1, -1.0), PaddedInput("mask", 1, mask=True)),
        trimmed_outputs=(TrimmedOutput("states", 2, "ids", 1),),
        instances=2,
        intra_op_threads=1,
        cpus=(0, 1),
        execution_providers=("CPUExecutionProvider",),
        auto_tune=True,
        response_cache=CacheLimits(1000, 1.5),
        sequence=SequenceLimits((SequenceState("state", "next"),), 0.5, 99),
        generation=GenerationSettings(
            kv_cache_bytes=1 << 30,
            max_running_requests=16,
            max_step_tokens=256,
            max_queue_requests=100,
            context_length=2048,
            max_output_tokens=4096,
            prefix_cache=False,
            max_tenant_share=0.25,
            target=Target.PORTABLE,
        ),
    )
    default = RunSettings()
    unchanged = {
        field.name
        for field in dataclasses.fields(RunSettings)
        if getattr(found, field.name) == getattr(default, field.name)
    }
    assert unchanged == set()


def test_what_is_unset_is_the_default() -> None:
    """An empty message, and enums that say nothing, are the worker's own defaults."""
    assert run_settings(pb.ModelVersion()) == RunSettings()
    spoken = pb.VersionSettings(
        oversize_policy=pb.OVERSIZE_POLICY_SPLIT, tuning_mode=pb.TUNING_MODE_OFF
    )
    assert run_settings(pb.ModelVersion(settings=spoken)) == RunSettings()
    bare = pb.VersionSettings(sequence=pb.SequenceSettings())
    assert run_settings(pb.ModelVersion(settings=bare)).sequence == SequenceLimits(())


def test_tuning_comes_with_the_version() -> None:
    """What was measured arrives; while nothing was, it is None, and a request to measure counts as AUTO."""
    assert tuning(pb.ModelVersion()) is None
    assert run_settings(pb.ModelVersion(measuring_wanted=True)).auto_tune
    found = pb.VersionTuning(
        intra_op_threads=1,
        instances=2,
        max_batch_size=64,
        rows_per_second=1000.5,
        baseline_rows_per_second=200.25,
        machine_cpus=2,
    )
    assert tuning(pb.ModelVersion(tuning=found)) == Tuning(
        intra_op_threads=1,
        instances=2,
        max_batch_size=64,
        rows_per_second=1000.5,
        baseline_rows_per_second=200.25,
        machine_cpus=2,
    )
