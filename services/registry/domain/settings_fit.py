"""Whether the settings of a version fit its signature, which is read once the artifact is there."""

from collections.abc import Mapping, Sequence

from services.registry.domain.format_rules import check_generation_fit
from services.registry.domain.model import Signature, TensorSpec
from services.registry.domain.version_settings import (
    BatchAxis,
    PaddedInput,
    SequenceState,
    TrimmedOutput,
    VersionSettings,
)
from services.rpc.names import shown
from services.rpc.violations import Violations

_SHAPE_OF_ANY_RANK = (-1,)  # how an output of unknown rank is listed; it may have any axis
_LISTED = 10  # names that a violation lists
_LARGEST_FLOAT = {"FP16": 65504.0, "BF16": 3.3895e38, "FP32": 3.4028235e38, "FP64": float("inf")}


def check_fit(settings: VersionSettings, signature: Signature) -> None:
    """Refuse settings that name tensors or axes that are not there, or ask for more than a model has. All at once."""
    violations = Violations()
    if signature.language_model is not None and settings.generation is not None:
        check_generation_fit(violations, settings.generation, signature.language_model)
    inputs = {spec.name: spec for spec in signature.inputs}
    outputs = {spec.name: spec for spec in signature.outputs}
    if settings.batch_axis is BatchAxis.FIRST:
        _check_rows(violations, signature)
    for index, padded in enumerate(settings.padded_inputs):
        _check_padded(violations, f"settings.padded_inputs[{index}]", padded, inputs)
    for index, trimmed in enumerate(settings.trimmed_outputs):
        _check_trimmed(violations, f"settings.trimmed_outputs[{index}]", trimmed, outputs)
    if settings.sequence is not None:
        padded_names = {padded.name for padded in settings.padded_inputs}
        for index, state in enumerate(settings.sequence.states):
            field = f"settings.sequence.states[{index}]"
            _check_state(violations, field, state, (inputs, outputs))
            violations.require(
                state.input not in padded_names,
                f"{field}.input",
                f"{shown(state.input)} is a padded input; allowed: an input that is not padded",
            )
    violations.raise_if_any()


def _check_rows(violations: Violations, signature: Signature) -> None:
    scalars = [
        shown(spec.name) for spec in (*signature.inputs, *signature.outputs) if not spec.shape
    ]
    violations.require(
        not scalars,
        "settings.batch_axis",
        f"BATCH_AXIS_FIRST, but {', '.join(scalars[:_LISTED])} has no axis;"
        " allowed: BATCH_AXIS_NONE or unset",
    )


def _check_padded(
    violations: Violations, field: str, padded: PaddedInput, inputs: Mapping[str, TensorSpec]
) -> None:
    spec = _find(violations, f"{field}.name", padded.name, inputs)
    if spec is None:
        return
    _check_free_axis(violations, f"{field}.axis", padded.axis, spec)
    allowed = _pad_values(spec.datatype)
    violations.require(
        _is_pad_value(padded.pad_value, spec.datatype),
        f"{field}.pad_value",
        f"{padded.pad_value:g} for {shown(spec.name)} of {spec.datatype}; allowed: {allowed}",
    )


def _check_trimmed(
    violations: Violations, field: str, trimmed: TrimmedOutput, outputs: Mapping[str, TensorSpec]
) -> None:
    spec = _find(violations, f"{field}.name", trimmed.name, outputs)
    if spec is not None and spec.shape != _SHAPE_OF_ANY_RANK:
        _check_free_axis(violations, f"{field}.axis", trimmed.axis, spec)


def _check_state(
    violations: Violations,
    field: str,
    state: SequenceState,
    tensors: tuple[Mapping[str, TensorSpec], Mapping[str, TensorSpec]],
) -> None:
    given = _find(violations, f"{field}.input", state.input, tensors[0])
    kept = _find(violations, f"{field}.output", state.output, tensors[1])
    if given is None or kept is None:
        return
    violations.require(
        given.datatype == kept.datatype,
        f"{field}.output",
        f"{shown(kept.name)} has {kept.datatype}, {shown(given.name)} {given.datatype};"
        " allowed: the same datatype",
    )
    # A sequence begins with zeros, of a size that must be known.
    violations.require(
        all(size >= 0 for size in given.shape[1:]),
        f"{field}.input",
        f"{shown(given.name)} has shape {_shape(given)}; allowed: fixed sizes after the first axis",
    )
    violations.require(
        kept.shape == _SHAPE_OF_ANY_RANK or _is_compatible(given.shape, kept.shape),
        f"{field}.output",
        f"{shown(kept.name)} has shape {_shape(kept)}, {shown(given.name)} {_shape(given)};"
        " allowed: the same shape",
    )


def _is_compatible(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(
        a == b or a < 0 or b < 0 for a, b in zip(one, other, strict=True)
    )


def _find(
    violations: Violations, field: str, name: str, specs: Mapping[str, TensorSpec]
) -> TensorSpec | None:
    spec = specs.get(name)
    if spec is None:
        listed = ", ".join(shown(known) for known in sorted(specs)[:_LISTED]) or "none"
        more = f" and {len(specs) - _LISTED} more" if len(specs) > _LISTED else ""
        violations.add(field, f"{shown(name)} is not in the signature; allowed: {listed}{more}")
    return spec


def _check_free_axis(violations: Violations, field: str, axis: int, spec: TensorSpec) -> None:
    free = [str(n) for n, size in enumerate(spec.shape) if size < 0 and n > 0]
    allowed = ", ".join(free) or "none, no axis after the first has any size"
    violations.require(
        str(axis) in free,
        field,
        f"{axis} of {shown(spec.name)}, which has shape {_shape(spec)}; allowed: {allowed}",
    )


def _shape(spec: TensorSpec) -> str:
    return f"[{', '.join('?' if size < 0 else str(size) for size in spec.shape)}]"


def _pad_values(datatype: str) -> str:
    bounds = _integer_bounds(datatype)
    if bounds is not None:
        return f"whole numbers from {bounds[0]} to {bounds[1]}"
    return "0, it is padded with empty strings" if datatype == "BYTES" else "what the type can hold"


def _is_pad_value(value: float, datatype: str) -> bool:
    if datatype == "BYTES":
        return value == 0
    bounds = _integer_bounds(datatype)
    if bounds is None:
        return abs(value) <= _LARGEST_FLOAT.get(datatype, float("inf"))
    return float(value).is_integer() and bounds[0] <= int(value) <= bounds[1]


def _integer_bounds(datatype: str) -> tuple[int, int] | None:
    """Least and largest value; None for types that are no integers."""
    if datatype == "BOOL":
        return 0, 1
    kind, _, bits = datatype.partition("INT")
    if kind not in {"", "U"} or not bits.isdecimal():
        return None
    width = int(bits)
    return (0, (1 << width) - 1) if kind == "U" else (-(1 << width - 1), (1 << width - 1) - 1)
