"""One inference as a client asks for it, checked against the signature: every violation at once, sizes before data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.rpc.names import shown
from services.worker.domain.contents import Array, Contents, ContentsError, Wanted
from services.worker.domain.request_options import PLAIN, AnswerFacts, RequestOptions
from services.worker.domain.request_use import RequestUse
from services.worker.domain.signature import FREE, Signature, TensorSpec


@dataclass(frozen=True, slots=True)
class GivenTensor:
    """One input as it was sent; nothing is believed yet."""

    name: str
    datatype: str
    shape: Sequence[int]
    contents: Contents


@dataclass(frozen=True, slots=True)
class InferRequest:
    """Checked inputs and the outputs that are wanted."""

    feeds: Mapping[str, Array]  # in the model's order of inputs
    outputs: tuple[str, ...]  # in the order in which the client wants them
    options: RequestOptions = PLAIN
    facts: AnswerFacts | None = None  # filled in for the caller; None: nobody asked
    tenant: str = ""  # `x-inferplane-project`, which the edge sets; empty: nobody in particular
    retried: bool = False  # Envoy has sent it to another worker before
    use: RequestUse | None = None  # filled in for who counts; None: nobody does


def read_inputs(
    signature: Signature, given: Sequence[GivenTensor], max_elements: int
) -> dict[str, Array]:
    """Arrays by input name, in the model's order. Raises InvalidArgumentError with all violations.

    Args:
        signature: of the version that will compute.
        given: as the client sent them, in any order.
        max_elements: bound on any product of dimensions, zeros aside: what a message could carry at most.
    """
    violations: list[FieldViolation] = []
    wanted: dict[str, tuple[Wanted, Contents]] = {}
    for index, tensor in enumerate(given):
        field = f"inputs[{index}]"
        position = signature.input_index.get(tensor.name)
        if position is None:
            violations.append(_unknown(field, tensor.name, signature))
        elif tensor.name in wanted:
            violations.append(
                FieldViolation(f"{field}.name", f"{tensor.name!r} is given twice; allowed: once")
            )
        else:
            spec = signature.inputs[position]
            problems = _problems(field, spec, tensor, max_elements)
            violations += problems
            shape = tuple(tensor.shape)
            count = 0 if problems else math.prod(shape)
            wanted[tensor.name] = (Wanted(spec.datatype, shape, count), tensor.contents)
    missing = [spec for spec in signature.inputs if spec.name not in wanted]
    violations += [FieldViolation("inputs", f"{spec} is missing") for spec in missing]
    if violations:
        raise InvalidArgumentError.of_fields(violations)
    return _arrays(signature, wanted)


def read_outputs(signature: Signature, names: Sequence[str]) -> tuple[str, ...]:
    """The outputs that are wanted: those named, or all. Raises InvalidArgumentError."""
    if not names:
        return tuple(spec.name for spec in signature.outputs)
    violations = []
    for index, name in enumerate(names):
        if name not in signature.output_index:
            allowed = ", ".join(repr(spec.name) for spec in signature.outputs)
            text = f"{shown(name)} is not an output; allowed: {allowed}"
        elif name in names[:index]:
            text = f"{name!r} is given twice; allowed: once"
        else:
            continue
        violations.append(FieldViolation(f"outputs[{index}].name", text))
    if violations:
        raise InvalidArgumentError.of_fields(violations)
    return tuple(names)


def _arrays(
    signature: Signature, wanted: Mapping[str, tuple[Wanted, Contents]]
) -> dict[str, Array]:
    violations: list[FieldViolation] = []
    arrays: dict[str, Array] = {}
    for spec in signature.inputs:
        what, contents = wanted[spec.name]
        try:
            arrays[spec.name] = contents.array(what)
        except ContentsError as error:
            violations.append(error.violation)
    if violations:
        raise InvalidArgumentError.of_fields(violations)
    return arrays


def _unknown(field: str, name: str, signature: Signature) -> FieldViolation:
    allowed = ", ".join(repr(spec.name) for spec in signature.inputs)
    return FieldViolation(f"{field}.name", f"{shown(name)} is not an input; allowed: {allowed}")


def _problems(
    field: str, spec: TensorSpec, tensor: GivenTensor, max_elements: int
) -> list[FieldViolation]:
    """What is wrong with datatype and shape, without touching data."""
    found = []
    if tensor.datatype != spec.datatype.name:
        text = f"{shown(tensor.datatype)} given; allowed: {spec.datatype.name}"
        found.append(FieldViolation(f"{field}.datatype", text))
    reason = _shape_problem(spec.shape, tensor.shape, max_elements)
    if reason is not None:
        found.append(FieldViolation(f"{field}.shape", reason))
    return found


def _shape_problem(allowed: tuple[int, ...], given: Sequence[int], max_elements: int) -> str | None:
    if len(given) != len(allowed):
        return (
            f"{len(given)} dimensions given ({_shape_text(given)});"
            f" allowed: {len(allowed)} ({list(allowed)}, -1: any size)"
        )
    size = 1
    for dim, limit in zip(given, allowed, strict=True):
        if dim < 0:
            return f"{_shape_text(given)} given; allowed: no negative dimension"
        if limit not in (FREE, dim):
            return f"{_shape_text(given)} given; allowed: {list(allowed)} (-1: any size)"
        # A zero elsewhere must not hide a size that the model could then allocate.
        size *= dim or 1
        if size > max_elements:
            return (
                f"{_shape_text(given)} given, an overflow; allowed: at most {max_elements} elements"
            )
    return None


def _shape_text(shape: Sequence[int]) -> str:
    dims = ", ".join(str(dim) for dim in shape[:8])
    return f"[{dims}{', …' if len(shape) > 8 else ''}]"
