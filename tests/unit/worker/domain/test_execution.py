"""What is in effect for a version: settings first, then what was measured, then the worker's defaults."""

import dataclasses

import pytest

from services.worker.domain.assignment import BatchAxis, RunSettings, Tuning
from services.worker.domain.execution import (
    Execution,
    ExecutionDefaults,
    Findings,
    execution_of,
)
from tests.models import good
from tests.unit.worker.specs import spec_of_model

SPEC = spec_of_model(good.affine(2.0))
DEFAULTS = ExecutionDefaults(max_batch_size=32, instances=2, intra_op_threads=1)


def tuning(threads: int, instances: int, rows: int) -> Tuning:
    return Tuning(
        intra_op_threads=threads,
        instances=instances,
        max_batch_size=rows,
        rows_per_second=2.0,
        baseline_rows_per_second=1.0,
        machine_cpus=4,
    )


@pytest.mark.parametrize(
    ("settings", "kept", "found", "expected"),
    [
        pytest.param(RunSettings(), None, Findings(), (32, 2, 1, ""), id="defaults"),
        pytest.param(RunSettings(), tuning(4, 1, 8), Findings(), (8, 1, 4, ""), id="tuning"),
        pytest.param(
            RunSettings(), None, Findings(tuning=tuning(4, 1, 8)), (8, 1, 4, ""), id="just measured"
        ),
        pytest.param(
            RunSettings(),
            tuning(1, 4, 16),
            Findings(tuning=tuning(4, 1, 8)),
            (16, 4, 1, ""),
            id="the registry's comes first",
        ),
        pytest.param(
            RunSettings(max_batch_size=5, instances=3, intra_op_threads=7),
            tuning(4, 1, 8),
            Findings(),
            (5, 3, 7, ""),
            id="settings come first",
        ),
        pytest.param(
            RunSettings(max_batch_size=1), None, Findings(), (1, 2, 1, "max_batch_size 1"), id="one"
        ),
        pytest.param(
            RunSettings(batch_axis=BatchAxis.NONE),
            None,
            Findings(),
            (1, 2, 1, "batch_axis NONE"),
            id="no axis",
        ),
        pytest.param(
            RunSettings(max_batch_size=8),
            None,
            Findings(batching_off_reason="row 1 differs"),
            (1, 2, 1, "row 1 differs"),
            id="checked",
        ),
        pytest.param(
            RunSettings(), tuning(1, 4, 1), Findings(), (1, 4, 1, "measuring"), id="measured: one"
        ),
    ],
)
def test_what_is_in_effect(
    settings: RunSettings,
    kept: Tuning | None,
    found: Findings,
    expected: tuple[int, int, int, str],
) -> None:
    """Rows, instances, threads, and why it is not batched."""
    spec = dataclasses.replace(SPEC, settings=settings, tuning=kept)
    execution = execution_of(spec, found, DEFAULTS)
    rows, instances, threads, words = expected
    assert execution == Execution(
        max_batch_size=rows,
        instances=instances,
        intra_op_threads=threads,
        batching_off_reason=execution.batching_off_reason,
        warnings=(),
    )
    assert words in execution.batching_off_reason
    assert bool(words) == bool(execution.batching_off_reason)
