"""Rows that differ, the same at each call, of values that a model accepts: for comparing batches with single runs.

Zeros and ones alone prove little: their mean is themselves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.assignment import PaddedInput
from services.worker.domain.contents import Array
from services.worker.domain.datatype import BOOL, BYTES
from services.worker.domain.example import LENGTHS, Run
from services.worker.domain.signature import FREE, Signature, TensorSpec

_LENGTHS = (5, *LENGTHS)
_FEW, _MANY = (
    2,
    100,
)  # integers are `least` and the next, so that indices stay valid, or as many as are accepted
_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """How inputs are filled."""

    length: int = _LENGTHS[0]  # of free dimensions beyond the first
    least: int = 0  # of integers; zeros may be what a model divides by
    many: frozenset[str] = frozenset()  # integer inputs of more than two values
    positive: bool = False  # floats from 0.1 to 1 instead of -2 to 2: logarithms and roots
    masks: frozenset[str] = frozenset()  # inputs of ones


def rows_of(
    signature: Signature, variation: Variation, number: int, rows: int = 1
) -> dict[str, Array]:
    """The inputs of rows `number`, `number` + 1 …, each the same whatever is around it."""
    made = [_row(signature, variation, number + n) for n in range(rows)]
    return {
        spec.name: np.concatenate([row[spec.name] for row in made])
        if spec.has_free_rows
        else made[0][spec.name]
        for spec in signature.inputs
    }


def with_length(variation: Variation, length: int) -> Variation:
    """The same with another length."""
    return replace(variation, length=length)


def settle(signature: Signature, run: Run, padded: tuple[PaddedInput, ...] = ()) -> Variation:
    """A variation of which the model accepts a row: the most varied that it does. Raises what it raises."""
    masks = frozenset(one.name for one in padded if one.mask)
    variation, outputs = _first_accepted(signature, run, masks)
    if not _is_finite(outputs):
        calmer = replace(variation, positive=True)
        if _is_finite(_try(signature, run, calmer)):
            variation = calmer
    for spec in signature.inputs:
        if spec.datatype.is_integer and spec.name not in masks:
            wider = replace(variation, many=variation.many | {spec.name})
            if _try(signature, run, wider) is not None:
                variation = wider
    return variation


def _first_accepted(
    signature: Signature, run: Run, masks: frozenset[str]
) -> tuple[Variation, Mapping[str, Array]]:
    refused: InvalidArgumentError | None = None
    for variation in _variations(signature, masks):
        try:
            return variation, run(rows_of(signature, variation, 0))
        except InvalidArgumentError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _variations(signature: Signature, masks: frozenset[str]) -> Iterator[Variation]:
    has_lengths = any(FREE in spec.shape[1:] for spec in signature.inputs)
    for length in _LENGTHS if has_lengths else _LENGTHS[:1]:
        for least in (0, 1):
            yield Variation(length=length, least=least, masks=masks)


def _try(signature: Signature, run: Run, variation: Variation) -> Mapping[str, Array] | None:
    """Its outputs; None: refused."""
    try:
        return run(rows_of(signature, variation, 0))
    except InvalidArgumentError:
        return None


def _is_finite(outputs: Mapping[str, Array] | None) -> bool:
    if outputs is None:
        return False
    return all(
        bool(np.isfinite(array.astype(np.float64)).all())
        for array in outputs.values()
        if array.dtype.kind not in "ObiuUS"
    )


def _row(signature: Signature, variation: Variation, number: int) -> dict[str, Array]:
    numbers = np.random.default_rng((_SEED, number))
    return {spec.name: _values(spec, variation, numbers) for spec in signature.inputs}


def _values(spec: TensorSpec, variation: Variation, numbers: np.random.Generator) -> Array:
    shape = [variation.length if dim == FREE else dim for dim in spec.shape]
    if spec.has_free_rows:
        shape[0] = 1
    dtype = spec.datatype.dtype
    if spec.name in variation.masks:
        return np.ones(shape, dtype)
    if spec.datatype is BYTES:
        words = [f"row {n}" for n in numbers.integers(0, 1000, int(np.prod(shape)))]
        return np.array(words, dtype=object).reshape(shape)
    if spec.datatype is BOOL:
        return np.asarray(numbers.integers(0, 2, shape)).astype(dtype)
    if spec.datatype.is_integer:
        count = _MANY if spec.name in variation.many else _FEW
        least = variation.least
        return np.asarray(numbers.integers(least, least + count, shape)).astype(dtype)
    low, high = (0.1, 1.0) if variation.positive else (-2.0, 2.0)
    return np.asarray(numbers.uniform(low, high, shape)).astype(dtype)
