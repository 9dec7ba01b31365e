"""Rules for settings of a version that hold whatever its signature is."""

from dataclasses import replace

import pytest

from services.registry.domain.settings_rules import check_settings
from services.registry.domain.version_settings import (
    BatchAxis,
    PaddedInput,
    ResponseCacheSettings,
    SequenceSettings,
    SequenceState,
    TrimmedOutput,
    VersionSettings,
)
from services.rpc.violations import Violations
from tests.unit.registry.full_settings import FULL_SETTINGS

S = VersionSettings
IDS = PaddedInput("ids", 1)


def violations_of(settings: VersionSettings) -> dict[str, str]:
    violations = Violations()
    check_settings(violations, settings)
    return {violation.field: violation.description for violation in violations.found}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(S(), id="zeros are the worker's defaults"),
        pytest.param(
            S(
                max_batch_size=65_536,
                max_queue_delay_us=60_000_000,
                max_queue_rows=1_000_000_000,
                max_queue_bytes=1 << 50,
                queue_timeout_us=3_600_000_000,
                priority_levels=100,
                default_priority=100,
                intra_op_threads=1024,
                instances=256,
                cpus=(4095, 0),
            ),
            id="upper ends of the ranges",
        ),
        pytest.param(replace(FULL_SETTINGS, sequence=None), id="all but sequences"),
        pytest.param(replace(FULL_SETTINGS, response_cache=None), id="all but the response cache"),
        pytest.param(S(preferred_batch_sizes=(1, 65_536)), id="preferred sizes without a largest"),
        pytest.param(
            S(preferred_batch_sizes=(8,), max_batch_size=8), id="preferred is the largest"
        ),
        pytest.param(S(batch_axis=BatchAxis.NONE, max_batch_size=1), id="no batches, said twice"),
        pytest.param(
            S(padded_inputs=(IDS, PaddedInput("ids", 2))), id="two axes of the same input"
        ),
        pytest.param(S(response_cache=ResponseCacheSettings(1)), id="a cache without an end"),
        pytest.param(S(sequence=SequenceSettings()), id="sequences without state"),
    ],
)
def test_settings_that_are_allowed(settings: VersionSettings) -> None:
    """Defaults, ends of ranges and all that goes together pass."""
    assert violations_of(settings) == {}


@pytest.mark.parametrize(
    ("settings", "field", "text"),
    [
        (S(max_batch_size=-1), "max_batch_size", "-1 is out of range; allowed: 0 to 65536"),
        (S(max_batch_size=65_537), "max_batch_size", "65537"),
        (S(max_queue_delay_us=60_000_001), "max_queue_delay_us", "allowed: 0 to 60000000"),
        (S(max_queue_rows=-1), "max_queue_rows", "allowed: 0 to"),
        (S(max_queue_bytes=-1), "max_queue_bytes", "allowed: 0 to"),
        (S(queue_timeout_us=3_600_000_001), "queue_timeout_us", "allowed: 0 to 3600000000"),
        (S(priority_levels=101), "priority_levels", "allowed: 0 to 100"),
        (S(default_priority=1), "default_priority", "1 is out of range; allowed: 0 to 0"),
        (S(priority_levels=2, default_priority=3), "default_priority", "allowed: 0 to 2"),
        (S(instances=257), "instances", "allowed: 0 to 256"),
        (S(intra_op_threads=-2), "intra_op_threads", "-2"),
        (S(execution_providers=("gpu",)), "execution_providers[0]", "'gpu'"),
        (S(execution_providers=("CPUExecutionProvider",) * 2), "execution_providers", "2 names"),
        (S(preferred_batch_sizes=(0,)), "preferred_batch_sizes[0]", "0 rows; allowed: 1 to 65536"),
        (
            S(preferred_batch_sizes=(4, 9), max_batch_size=8),
            "preferred_batch_sizes[1]",
            "9 rows; allowed: 1 to 8",
        ),
        (S(preferred_batch_sizes=(8, 8)), "preferred_batch_sizes[1]", "8 follows 8"),
        (S(preferred_batch_sizes=(8, 4)), "preferred_batch_sizes[1]", "4 follows 8"),
        (S(preferred_batch_sizes=tuple(range(1, 66))), "preferred_batch_sizes", "65 entries"),
        (S(cpus=(0, 0)), "cpus[1]", "CPU 0 is settings.cpus[0] already"),
        (S(cpus=(-1,)), "cpus[0]", "-1 is out of range; allowed: 0 to 4095"),
        (S(padded_inputs=(PaddedInput("ids", 0),)), "padded_inputs[0].axis", "0; allowed: 1 to 63"),
        (S(padded_inputs=(PaddedInput("", 1),)), "padded_inputs[0].name", "is empty"),
        (S(padded_inputs=(IDS, IDS)), "padded_inputs[1]", "axis 1 of 'ids'"),
        (
            S(padded_inputs=(PaddedInput("ids", 1, float("nan")),)),
            "padded_inputs[0].pad_value",
            "nan; allowed: a finite number",
        ),
        (
            S(padded_inputs=(PaddedInput("mask", 1, 1.0, mask=True),)),
            "padded_inputs[0].pad_value",
            "1 of a mask; allowed: 0",
        ),
        (
            S(trimmed_outputs=(TrimmedOutput("y", 1, "ids", 1),)),
            "trimmed_outputs[0].input",
            "'ids' is no padded input; allowed: one of padded_inputs (none is declared)",
        ),
        (
            S(padded_inputs=(IDS,), trimmed_outputs=(TrimmedOutput("y", 1, "ids", 2),)),
            "trimmed_outputs[0].input_axis",
            "axis 2 of 'ids' is not padded; allowed: 1",
        ),
        (
            S(padded_inputs=(IDS,), trimmed_outputs=(TrimmedOutput("y", 0, "ids", 1),)),
            "trimmed_outputs[0].axis",
            "0; allowed: 1 to 63",
        ),
        (
            S(padded_inputs=(IDS,), trimmed_outputs=(TrimmedOutput("y", 1, "ids", 1),) * 2),
            "trimmed_outputs[1]",
            "axis 1 of 'y'",
        ),
        (S(batch_axis=BatchAxis.NONE, max_batch_size=2), "max_batch_size", "allowed: 0 or 1"),
        (
            S(batch_axis=BatchAxis.NONE, padded_inputs=(IDS,)),
            "padded_inputs",
            "1 entries with batch_axis BATCH_AXIS_NONE; allowed: none",
        ),
        (S(response_cache=ResponseCacheSettings(0)), "response_cache.max_bytes", "0; allowed: 1"),
        (S(response_cache=ResponseCacheSettings(1, -1)), "response_cache.ttl_ms", "-1"),
        (
            S(response_cache=ResponseCacheSettings(1), sequence=SequenceSettings()),
            "response_cache",
            "allowed: one of both",
        ),
        (S(sequence=SequenceSettings((), -1)), "sequence.idle_timeout_ms", "-1"),
        (S(sequence=SequenceSettings((), 0, -1)), "sequence.max_bytes", "-1"),
        (
            S(sequence=SequenceSettings((SequenceState("a", ""),))),
            "sequence.states[0].output",
            "is empty",
        ),
        (
            S(sequence=SequenceSettings((SequenceState("a", "x"), SequenceState("a", "y")))),
            "sequence.states[1]",
            "input 'a' is settings.sequence.states[0] already",
        ),
        (
            S(sequence=SequenceSettings((SequenceState("a", "x"), SequenceState("b", "x")))),
            "sequence.states[1]",
            "output 'x'",
        ),
    ],
)
def test_settings_that_are_refused(settings: VersionSettings, field: str, text: str) -> None:
    """A setting out of its range, or one that contradicts another, is named with what is allowed."""
    found = violations_of(settings)
    assert list(found) == [f"settings.{field}"]
    assert text in found[f"settings.{field}"]


def test_all_violations_are_found() -> None:
    """Two wrong settings are two violations, not one."""
    assert len(violations_of(S(max_batch_size=-1, instances=-1))) == 2


def test_a_largest_batch_that_is_none_bounds_nothing() -> None:
    """Preferred sizes are not told to lie below a size that is out of range itself."""
    found = violations_of(S(max_batch_size=-3, preferred_batch_sizes=(4, 8)))
    assert list(found) == ["settings.max_batch_size"]
