"""How far a row of a batch may be from the same row alone: per datatype, since kernels sum in another order.

A value may differ by `relative` times itself plus `of_largest` times the largest value of its output, and by `least`
always. Whole numbers, booleans and strings are equal or not. Double precision has room for a model that computes in
single precision inside.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from services.worker.domain.contents import Array


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Bounds of one datatype."""

    relative: float
    of_largest: float  # of the output's largest finite value, alone
    least: float  # what is left of numbers that should cancel out


_EXACT = Tolerance(0.0, 0.0, 0.0)
TOLERANCES: dict[np.dtype, Tolerance] = {
    np.dtype(np.float64): Tolerance(1e-5, 1e-6, 1e-12),
    np.dtype(np.float32): Tolerance(1e-3, 1e-4, 1e-7),
    np.dtype(np.float16): Tolerance(1e-2, 1e-3, 1e-6),
    np.dtype(ml_dtypes.bfloat16): Tolerance(5e-2, 1e-2, 1e-6),
}


@dataclass(frozen=True, slots=True)
class Gap:
    """Where two arrays of one shape differ by more than they may, at its widest."""

    index: tuple[int, ...]
    alone: str
    batched: str
    difference: float | None  # None: values that have none, as strings
    allowed: float

    def __str__(self) -> str:
        if self.difference is None:
            return f"{self.alone} alone, {self.batched} together"
        return (
            f"{self.alone} alone, {self.batched} together, a difference of"
            f" {self.difference:.3g}; allowed {self.allowed:.3g}"
        )


def widest_gap(alone: Array, batched: Array, largest: float) -> Gap | None:
    """The worst value beyond tolerance; None: all are within. `largest`: see `largest_of`."""
    tolerance = TOLERANCES.get(alone.dtype, _EXACT)
    if alone.dtype.kind in "Obiu":
        return _first_unequal(alone, batched)
    a, b = alone.astype(np.float64), batched.astype(np.float64)
    with np.errstate(invalid="ignore"):
        allowed = tolerance.relative * np.abs(a) + tolerance.of_largest * largest
        allowed = np.maximum(allowed, tolerance.least)
        difference = np.abs(a - b)
        is_same = (a == b) | (np.isnan(a) & np.isnan(b))
        # Whatever is not a number on one side only is beyond any bound.
        excess = np.where(is_same, -np.inf, np.nan_to_num(difference - allowed, nan=np.inf))
    if excess.size == 0 or excess.max() <= 0:
        return None
    index = _unravel(int(excess.argmax()), a.shape)
    return Gap(
        index, f"{a[index]:.6g}", f"{b[index]:.6g}", float(difference[index]), float(allowed[index])
    )


def largest_of(array: Array) -> float:
    """The largest finite absolute value; 0 for what has none."""
    if array.dtype.kind in "Obiu" or array.size == 0:
        return 0.0
    wide = np.abs(array.astype(np.float64))
    finite = wide[np.isfinite(wide)]
    return float(finite.max()) if finite.size else 0.0


def _first_unequal(alone: Array, batched: Array) -> Gap | None:
    unequal = np.asarray(alone != batched)
    if not unequal.any():
        return None
    index = _unravel(int(unequal.argmax()), alone.shape)
    a, b = alone[index], batched[index]
    if alone.dtype.kind in "iu":
        return Gap(index, str(a), str(b), float(abs(int(a) - int(b))), 0.0)
    return Gap(index, _shown(a), _shown(b), None, 0.0)


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:40] + "…"
