"""Settings of a version against its signature."""

import pytest

from services.registry.domain.model import Signature, TensorSpec
from services.registry.domain.settings_fit import check_fit
from services.registry.domain.version_settings import (
    BatchAxis,
    PaddedInput,
    SequenceSettings,
    SequenceState,
    TrimmedOutput,
    VersionSettings,
)
from services.rpc.errors import InvalidArgumentError

SIGNATURE = Signature(
    inputs=(
        TensorSpec("ids", "INT64", (-1, -1)),
        TensorSpec("mask", "BOOL", (-1, -1)),
        TensorSpec("small", "UINT8", (-1, -1)),
        TensorSpec("half", "FP16", (-1, -1)),
        TensorSpec("text", "BYTES", (-1, -1)),
        TensorSpec("fixed", "FP32", (-1, 16)),
        TensorSpec("state", "FP32", (-1, 8)),
    ),
    outputs=(
        TensorSpec("states", "FP32", (-1, -1, 384)),
        TensorSpec("any", "FP32", (-1,)),
        TensorSpec("next", "FP32", (-1, 8)),
        TensorSpec("wider", "FP32", (-1, 9)),
        TensorSpec("whole", "INT64", (-1, 8)),
    ),
)
SCALAR = Signature((TensorSpec("x", "FP32", ()),), (TensorSpec("y", "FP32", (-1,)),))


def padded(name: str, axis: int = 1, value: float = 0.0) -> VersionSettings:
    return VersionSettings(padded_inputs=(PaddedInput(name, axis, value),))


def trimmed(name: str, axis: int = 1) -> VersionSettings:
    return VersionSettings(
        padded_inputs=(PaddedInput("ids", 1),),
        trimmed_outputs=(TrimmedOutput(name, axis, "ids", 1),),
    )


def state(given: str, kept: str) -> VersionSettings:
    return VersionSettings(sequence=SequenceSettings((SequenceState(given, kept),)))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(VersionSettings(batch_axis=BatchAxis.FIRST), id="rows are counted"),
        pytest.param(padded("ids", value=-(2**63)), id="least of INT64"),
        pytest.param(padded("mask", value=1.0), id="true"),
        pytest.param(padded("half", value=-65504), id="least of FP16"),
        pytest.param(padded("text"), id="empty strings"),
        pytest.param(trimmed("states"), id="an axis of any size"),
        pytest.param(trimmed("any", 3), id="an output of unknown rank"),
        pytest.param(state("state", "next"), id="the same shape"),
        pytest.param(state("state", "any"), id="a state of unknown rank"),
    ],
)
def test_settings_that_fit(settings: VersionSettings) -> None:
    """What is in the signature as the settings say passes."""
    check_fit(settings, SIGNATURE)


@pytest.mark.parametrize(
    ("settings", "field", "text"),
    [
        (
            padded("idz"),
            "padded_inputs[0].name",
            "'idz' is not in the signature; allowed: 'fixed',",
        ),
        (padded("states"), "padded_inputs[0].name", "'states' is not in the signature"),
        (
            padded("ids", 2),
            "padded_inputs[0].axis",
            "2 of 'ids', which has shape [?, ?]; allowed: 1",
        ),
        (padded("fixed"), "padded_inputs[0].axis", "has shape [?, 16]; allowed: none"),
        (padded("ids", value=0.5), "padded_inputs[0].pad_value", "0.5 for 'ids' of INT64"),
        (padded("small", value=256), "padded_inputs[0].pad_value", "whole numbers from 0 to 255"),
        (padded("mask", value=2), "padded_inputs[0].pad_value", "whole numbers from 0 to 1"),
        (padded("half", value=65505), "padded_inputs[0].pad_value", "what the type can hold"),
        (padded("text", value=1), "padded_inputs[0].pad_value", "0, it is padded with empty"),
        (
            trimmed("ids"),
            "trimmed_outputs[0].name",
            "'ids' is not in the signature; allowed: 'any'",
        ),
        (trimmed("states", 2), "trimmed_outputs[0].axis", "[?, ?, 384]; allowed: 1"),
        (state("nope", "next"), "sequence.states[0].input", "'nope' is not in the signature"),
        (state("state", "nope"), "sequence.states[0].output", "'nope' is not in the signature"),
        (state("state", "whole"), "sequence.states[0].output", "allowed: the same datatype"),
        (state("state", "wider"), "sequence.states[0].output", "allowed: the same shape"),
        (state("ids", "whole"), "sequence.states[0].input", "allowed: fixed sizes after the first"),
    ],
)
def test_settings_that_do_not_fit(settings: VersionSettings, field: str, text: str) -> None:
    """What the signature doesn't have is named by the setting's path, with what it has."""
    with pytest.raises(InvalidArgumentError) as refused:
        check_fit(settings, SIGNATURE)
    (violation,) = refused.value.violations
    assert violation.field == f"settings.{field}"
    assert text in violation.description


def test_rows_of_a_scalar() -> None:
    """A declared batch axis needs an axis on everything."""
    with pytest.raises(InvalidArgumentError, match="'x' has no axis; allowed: BATCH_AXIS_NONE"):
        check_fit(VersionSettings(batch_axis=BatchAxis.FIRST), SCALAR)
    check_fit(VersionSettings(batch_axis=BatchAxis.NONE), SCALAR)


def test_a_padded_state() -> None:
    """What callers don't give is not padded."""
    both = VersionSettings(
        padded_inputs=(PaddedInput("ids", 1),),
        sequence=SequenceSettings((SequenceState("ids", "whole"),)),
    )
    with pytest.raises(InvalidArgumentError, match="'ids' is a padded input"):
        check_fit(both, SIGNATURE)
