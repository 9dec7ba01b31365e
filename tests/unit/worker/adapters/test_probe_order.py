"""What a probe process is told: whatever settings say, it reads the same."""

import dataclasses
from pathlib import Path

from services.rpc.names import VersionName
from services.worker.adapters import probe_order
from services.worker.adapters.probe_order import ProbeOrder
from services.worker.domain.assignment import (
    ArtifactFile,
    BatchAxis,
    CacheLimits,
    GenerationSettings,
    OversizePolicy,
    PaddedInput,
    RunSettings,
    SequenceLimits,
    SequenceState,
    TrimmedOutput,
    VersionSpec,
)
from services.worker.domain.signature import Signature, spec_of
from services.worker.llm.domain.engine_settings import Target

ALL = RunSettings(
    max_batch_size=8,
    preferred_batch_sizes=(2, 4),
    max_queue_delay=0.5,
    max_queue_rows=7,
    max_queue_bytes=9,
    queue_timeout=1.5,
    priority_levels=3,
    default_priority=2,
    oversize_policy=OversizePolicy.REFUSE,
    batch_axis=BatchAxis.FIRST,
    padded_inputs=(PaddedInput("x", 1, 0.5, mask=True),),
    trimmed_outputs=(TrimmedOutput("y", 1, "x", 2),),
    instances=2,
    intra_op_threads=3,
    cpus=(0, 1),
    execution_providers=("CPUExecutionProvider",),
    auto_tune=True,
    response_cache=CacheLimits(10, 2.5),
    sequence=SequenceLimits((SequenceState("x", "y"),), 3.5, 11),
    generation=GenerationSettings(context_length=5, prefix_cache=False, target=Target.PORTABLE),
)


def test_every_setting_survives_the_pipe() -> None:
    """Each has another value here than by default, so that one which is forgotten is found."""
    default = RunSettings()
    for field in dataclasses.fields(RunSettings):
        assert getattr(ALL, field.name) != getattr(default, field.name), field.name
    tensor = spec_of("x", "FP32", (-1, 2))
    order = ProbeOrder(
        spec=VersionSpec(
            name=VersionName("m", "1"),
            digest="d",
            files=(ArtifactFile("model.onnx", 1, "00"),),
            signature=Signature((tensor,), (tensor,)),
            settings=ALL,
        ),
        folder=Path("/somewhere"),
        intra_op_threads=1,
        execution_providers=(),
        max_batch_size=1,
        memory_bytes=0,
        seconds=1.0,
        tune_seconds=0.0,
    )
    assert probe_order.from_json(probe_order.to_json(order)) == order
