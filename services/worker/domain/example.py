"""Example inputs that a version answers before it takes calls, and what its answers must be."""

from collections.abc import Callable, Mapping

import numpy as np

from services.rpc.errors import InferplaneError, InvalidArgumentError
from services.worker.domain.contents import Array
from services.worker.domain.datatype import BYTES
from services.worker.domain.load_state import LoadError
from services.worker.domain.signature import FREE, Signature, TensorSpec

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]

# Sizes of free dimensions beyond the first, tried in turn: convolutions refuse what is smaller than they are.
LENGTHS = (1, 16, 64, 224)


def zeros(signature: Signature, rows: int = 1, length: int = 1) -> dict[str, Array]:
    """Zeros (BYTES: empty strings); the first dimension, where it is free, is `rows`, other free ones `length`."""
    return {spec.name: _filled(spec, rows, length) for spec in signature.inputs}


def ones(signature: Signature, length: int = 1) -> dict[str, Array]:
    """The same with ones (BYTES: the digit)."""
    return {
        name: np.full_like(a, "1" if a.dtype == object else 1)
        for name, a in zeros(signature, length=length).items()
    }


def check_answer(signature: Signature, run: Run) -> tuple[str, ...]:
    """Have an example answered: zeros, or ones if zeros are refused; then the same of larger sizes.

    Returns where answers have other shapes than declared. Raises LoadError if nothing is answered, or other datatypes.
    """
    try:
        outputs = _answer(signature, run)
    except InferplaneError as error:
        raise LoadError(f"the example failed: {error.message}") from error
    wrong = wrong_datatype(signature, outputs)
    if wrong is not None:
        raise LoadError(wrong)
    return tuple(shape_lies(signature, outputs))


def wrong_datatype(signature: Signature, outputs: Mapping[str, Array]) -> str | None:
    """An output of another datatype than declared, which could not be written; None: there is none."""
    for spec in signature.outputs:
        array = outputs[spec.name]
        if array.dtype != spec.datatype.dtype:
            return f"output {spec} is {array.dtype} in its answer"
    return None


def shape_lies(signature: Signature, outputs: Mapping[str, Array]) -> list[str]:
    """Outputs whose shapes are not those declared, in words. No declared dimension at all: any shape."""
    return [
        f"output {spec} has shape {list(outputs[spec.name].shape)} in an answer"
        for spec in signature.outputs
        if spec.shape and not _fits(spec.shape, outputs[spec.name].shape)
    ]


def _fits(declared: tuple[int, ...], actual: tuple[int, ...]) -> bool:
    return len(declared) == len(actual) and all(
        d in (FREE, a) for d, a in zip(declared, actual, strict=True)
    )


def _answer(signature: Signature, run: Run) -> Mapping[str, Array]:
    has_lengths = any(FREE in spec.shape[1:] for spec in signature.inputs)
    refused: InvalidArgumentError | None = None
    for length in LENGTHS if has_lengths else LENGTHS[:1]:
        for feeds in (zeros(signature, length=length), ones(signature, length=length)):
            try:  # zeros may be what a model divides by
                return run(feeds)
            except InvalidArgumentError as error:
                refused = refused or error
    assert refused is not None
    raise refused


def _filled(spec: TensorSpec, rows: int, length: int) -> Array:
    shape = [length if dim == FREE else dim for dim in spec.shape]
    if spec.has_free_rows:
        shape[0] = rows
    if spec.datatype is BYTES:
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, spec.datatype.dtype)
