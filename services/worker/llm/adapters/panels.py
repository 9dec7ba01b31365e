"""Panels: a quantised matrix as the operator `QLinear` reads it, 16 output columns at a time.

This is the layout's only description beside the kernels in native/qlinear_kernel.h. All variants of the kernels share
it: a panel's integers lie in the order in which dot products of four take them.
"""

import numpy as np

from services.worker.llm.domain.quantised import BLOCK, Array, QuantisedMatrix

PANEL = 16  # output columns of a panel
_FOUR = 4  # inputs that one instruction multiplies and adds
_LARGEST_HALF = 65504.0


def pack(matrix: QuantisedMatrix) -> tuple[Array, Array]:
    """Weights, uint8 [panels, K / 32, 256 or 512], and scales, float16 [panels, K / 32, 32].

    Rows that fill up the last panel are zero. Raises ValueError if the matrix is not as it says, or a scale is beyond
    what float16 holds.
    """
    _check(matrix)
    missing = -matrix.rows % PANEL
    q = np.pad(matrix.q, ((0, missing), (0, 0), (0, 0)))
    panels, blocks = len(q) // PANEL, q.shape[1]
    # A block of a panel: eight groups of four inputs; in a group the 16 columns, four inputs each.
    groups = q.reshape(panels, PANEL, blocks, BLOCK // _FOUR, _FOUR).transpose(0, 2, 3, 1, 4)
    if matrix.bits == 4:
        # Two groups share their bytes: the first has the low nibbles.
        pairs = groups.reshape(panels, blocks, BLOCK // _FOUR // 2, 2, PANEL * _FOUR)
        weight = pairs[..., 0, :] | pairs[..., 1, :] << 4
    else:
        weight = groups
    halves = [
        np.pad(part, ((0, missing), (0, 0)))
        .reshape(panels, PANEL, blocks)
        .transpose(0, 2, 1)
        .astype(np.float16)
        for part in (matrix.scale, matrix.minimum)
    ]
    return (
        np.ascontiguousarray(weight.reshape(panels, blocks, -1)),
        np.ascontiguousarray(np.concatenate(halves, axis=-1)),
    )


def _check(matrix: QuantisedMatrix) -> None:
    if matrix.bits not in (4, 8):
        raise ValueError(f"weights of {matrix.bits} bits, not 4 or 8")
    if matrix.q.dtype != np.uint8 or matrix.q.ndim != 3 or matrix.q.shape[2] != BLOCK:
        raise ValueError(f"weights of {matrix.q.dtype} {matrix.q.shape}, not uint8 [N, K / 32, 32]")
    if matrix.bits == 4 and matrix.q.max(initial=0) > 15:
        raise ValueError("a weight of 4 bits is above 15")
    for name, part in (("scale", matrix.scale), ("minimum", matrix.minimum)):
        if part.shape != matrix.q.shape[:2]:
            raise ValueError(f"{name} has the shape {part.shape}, not {matrix.q.shape[:2]}")
        if not np.abs(part).max(initial=0.0) <= _LARGEST_HALF:
            raise ValueError(f"{name} holds a value that float16 can't hold")
