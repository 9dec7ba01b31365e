"""Example inputs that a version answers before it takes calls, and what its answers must be."""

from collections.abc import Callable, Mapping

import numpy as np

from services.rpc.errors import InferplaneError, InvalidArgumentError
from services.worker.domain.contents import Array
from services.worker.domain.datatype import BOOL, BYTES
from services.worker.domain.load_state import LoadError
from services.worker.domain.signature import FREE, Signature, TensorSpec

_RELATIVE, _ABSOLUTE = (
    1e-3,
    1e-4,
)  # tolerance of batched against single; kernels sum in another order


def zeros(signature: Signature, rows: int = 1) -> dict[str, Array]:
    """Zeros (BYTES: empty strings) with free dimensions 1, the first one `rows`."""
    return {spec.name: _filled(spec, rows) for spec in signature.inputs}


def ones(signature: Signature) -> dict[str, Array]:
    """The same with ones (BYTES: the digit)."""
    return {
        name: np.full_like(a, "1" if a.dtype == object else 1)
        for name, a in zeros(signature).items()
    }


def check_answer(
    signature: Signature, run: Callable[[Mapping[str, Array]], Mapping[str, Array]]
) -> None:
    """Have an example answered as declared: zeros, or ones if zeros are refused. Raises LoadError."""
    try:
        try:
            outputs = run(zeros(signature))
        except InvalidArgumentError as refused:  # zeros may be what a model divides by
            try:
                outputs = run(ones(signature))
            except InvalidArgumentError:
                raise refused from None
    except InferplaneError as error:
        raise LoadError(f"the example failed: {error.message}") from error
    wrong = wrong_output(signature, outputs)
    if wrong is not None:
        raise LoadError(wrong)


def distinct_rows(signature: Signature, rows: int, least: int = 0) -> dict[str, Array]:
    """Rows that differ, the same at each call; integers are `least` or the next, so that indices stay valid."""
    numbers = np.random.default_rng(7)
    feeds = zeros(signature, rows)
    for spec in signature.inputs:
        shape = feeds[spec.name].shape
        if spec.datatype is BYTES:
            strings = [f"row {n}" for n in range(int(np.prod(shape)))]
            feeds[spec.name] = np.array(strings, dtype=object).reshape(shape)
        elif spec.datatype is BOOL:
            feeds[spec.name] = numbers.integers(0, 2, shape).astype(spec.datatype.dtype)
        elif spec.datatype.is_integer:
            whole = numbers.integers(least, least + 2, shape)
            feeds[spec.name] = whole.astype(spec.datatype.dtype)
        else:
            feeds[spec.name] = np.asarray(numbers.random(shape)).astype(spec.datatype.dtype)
    return feeds


def wrong_output(signature: Signature, outputs: Mapping[str, Array]) -> str | None:
    """How an answer differs from what is declared; None: it doesn't."""
    for spec in signature.outputs:
        array = outputs[spec.name]
        is_right = array.dtype == spec.datatype.dtype
        if not is_right:
            return f"output {spec} is {array.dtype} in its answer"
        fits = not spec.shape or (
            array.ndim == len(spec.shape)
            and all(d in (FREE, a) for d, a in zip(spec.shape, array.shape, strict=True))
        )
        if not fits:
            return f"output {spec} has shape {list(array.shape)} in its answer"
    return None


def batch_difference(
    batched: Mapping[str, Array], singles: list[Mapping[str, Array]]
) -> str | None:
    """Why a batch must not be trusted: its rows are not those of single runs. None: they are."""
    for name, array in batched.items():
        rows = [single[name] for single in singles]
        if array.ndim == 0 or any(row.shape[:1] != (1,) for row in rows):
            return f"output {name!r} has no row for each row of input"
        if array.shape != (len(rows), *rows[0].shape[1:]):
            return f"output {name!r} of {len(rows)} rows has shape {list(array.shape)}"
        if not _close(array, np.concatenate(rows)):
            return f"output {name!r} of a batch differs from that of single runs"
    return None


def _filled(spec: TensorSpec, rows: int) -> Array:
    shape = [1 if dim == FREE else dim for dim in spec.shape]
    if spec.has_free_rows:
        shape[0] = rows
    if spec.datatype is BYTES:
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, spec.datatype.dtype)


def _close(a: Array, b: Array) -> bool:
    if a.dtype.kind in "Obiu":
        return bool((a == b).all())
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    return bool(np.allclose(wide_a, wide_b, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True))
