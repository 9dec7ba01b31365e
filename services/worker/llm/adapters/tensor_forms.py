"""Stored tensors as what is computed with: matrices of small integers, or floats.

Formats are those of GGML's block structures (`ggml-common.h`): each block of a row has its own scale.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from services.modelfiles.tensor_info import TensorType
from services.worker.llm.domain.quantised import BLOCK, QuantisedMatrix

Array = np.ndarray[Any, np.dtype[Any]]
Parts = tuple[Array, Array, Array]  # integers [n, 32], scales [n], minima [n]

_PIECE = 4 * 1024**2  # elements that are worked on at a time
_FLOATS: Mapping[TensorType, str] = {TensorType.F32: "<f4", TensorType.F16: "<f2"}


def floats(raw: Array, kind: TensorType, shape: tuple[int, ...]) -> Array:
    """float32, exactly as stored."""
    if kind is TensorType.BF16:
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if kind in _FLOATS:
        return raw.view(_FLOATS[kind]).astype(np.float32).reshape(shape)
    from gguf.constants import GGMLQuantizationType  # a quarter of a second; serving does without
    from gguf.quants import dequantize

    rows = raw.reshape(*shape[:-1], -1)
    # What isn't finite is found by whoever asked.
    with np.errstate(invalid="ignore", over="ignore"):
        full: Array = dequantize(rows, GGMLQuantizationType(kind.number))
    return full.astype(np.float32, copy=False)


def quantised(raw: Array, kind: TensorType, shape: tuple[int, ...]) -> QuantisedMatrix:
    """A matrix [N, K], K a multiple of 32; exact unless it is Q6_K or stored as floats."""
    rows, columns = shape
    q = np.empty((rows, columns // BLOCK, BLOCK), np.uint8)
    scale = np.empty((rows, columns // BLOCK), np.float32)
    minimum = np.empty_like(scale)
    step = max(1, _PIECE // columns)
    by_row = raw.reshape(rows, -1)
    for begin in range(0, rows, step):
        piece = slice(begin, min(begin + step, rows))
        integers, scales, minima = _read(by_row[piece], kind, columns)
        q[piece] = integers.reshape(q[piece].shape)
        scale[piece] = scales.reshape(scale[piece].shape)
        minimum[piece] = minima.reshape(minimum[piece].shape)
    return QuantisedMatrix(q, scale, minimum, bits=4 if kind in _FOUR_BITS else 8)


def _read(rows: Array, kind: TensorType, columns: int) -> Parts:
    if kind.block == 1:
        return _from_floats(floats(rows.reshape(-1), kind, (rows.shape[0], columns)))
    # What isn't finite is found by whoever asked.
    with np.errstate(invalid="ignore", over="ignore"):
        return _READERS[kind](np.ascontiguousarray(rows).reshape(-1, kind.block_bytes))


def _from_floats(values: Array) -> Parts:
    """To 8 bits as Q8_0: the largest of each 32 becomes 127, zero stays zero."""
    blocks = values.reshape(-1, BLOCK)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(blocks).max(-1)  # not finite if any is not
        scale = (largest / 127).astype(np.float16).astype(np.float32)
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        whole = np.rint(np.clip(blocks * inverse[:, None], -127, 127))
    return _symmetric(np.nan_to_num(whole), scale)


def _symmetric(whole: Array, scale: Array) -> Parts:
    """Integers from -128 to 127 around zero."""
    return (whole.astype(np.int16) + 128).astype(np.uint8), scale, -128 * scale


def _half(blocks: Array, at: int) -> Array:
    return blocks[:, at : at + 2].copy().view("<f2")[:, 0].astype(np.float32)


def _nibbles(packed: Array) -> Array:
    """Low ones of all bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], -1)


def _fifth_bits(packed: Array) -> Array:
    """32 bits as the fifth ones of 32 integers."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << 4


def _q4_0(blocks: Array) -> Parts:
    scale = _half(blocks, 0)
    return _nibbles(blocks[:, 2:]), scale, -8 * scale


def _q4_1(blocks: Array) -> Parts:
    return _nibbles(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2)


def _q5_0(blocks: Array) -> Parts:
    whole = (_nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])).astype(np.int16) - 16
    return _symmetric(whole, _half(blocks, 0))


def _q5_1(blocks: Array) -> Parts:
    whole = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return whole, _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: Array) -> Parts:
    return _symmetric(np.ascontiguousarray(blocks[:, 2:]).view(np.int8), _half(blocks, 0))


def _k_scales(blocks: Array) -> tuple[Array, Array]:
    """Scales and minima of 8 blocks of 32, of 6 bits each, packed in 12 bytes after two halves."""
    low, middle, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 2) & 48)], -1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 2) & 48)], -1)
    return (
        (_half(blocks, 0)[:, None] * scales).reshape(-1),
        -(_half(blocks, 2)[:, None] * minima).reshape(-1),
    )


def _k_nibbles(packed: Array) -> Array:
    """128 bytes as 8 blocks: low nibbles of 32 bytes, then their high ones, and so on."""
    return _nibbles(packed.reshape(-1, 4, BLOCK)).reshape(-1, BLOCK)


def _q4_k(blocks: Array) -> Parts:
    return (_k_nibbles(blocks[:, 16:]), *_k_scales(blocks))


def _q5_k(blocks: Array) -> Parts:
    # Bit i of byte j is the fifth of integer j in block i.
    bits = np.unpackbits(blocks[:, 16:48, None], axis=-1, bitorder="little")
    high = np.ascontiguousarray(bits.transpose(0, 2, 1)).reshape(-1, BLOCK) << 4
    return (_k_nibbles(blocks[:, 48:]) | high, *_k_scales(blocks))


def _q6_k(blocks: Array) -> Parts:
    """Sixteen each have a scale; 32 get a quarter of the larger one, which is exact for those that it belongs to."""
    low = blocks[:, :128].reshape(-1, 2, 64)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    bits = ((high >> shifts) & 3) << 4
    whole = (_nibbles(low).reshape(-1, 2, 4, 32) | bits).astype(np.float32) - 32
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    scales = (scales * _half(blocks, 208)[:, None]).reshape(-1, 2)
    larger = np.abs(scales).argmax(-1)
    scale = np.take_along_axis(scales, larger[:, None], -1)[:, 0] / 4
    ratios = np.divide(scales, scale[:, None], out=np.zeros_like(scales), where=scale[:, None] != 0)
    values = whole.reshape(-1, 2, 16) * ratios[..., None]
    bounded = np.clip(np.rint(np.nan_to_num(values)), -128, 127)
    return _symmetric(bounded.reshape(-1, BLOCK), scale)


_READERS: Mapping[TensorType, Callable[[Array], Parts]] = {
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q5_0: _q5_0,
    TensorType.Q5_1: _q5_1,
    TensorType.Q8_0: _q8_0,
    TensorType.Q4_K: _q4_k,
    TensorType.Q5_K: _q5_k,
    TensorType.Q6_K: _q6_k,
}
_FOUR_BITS = frozenset({TensorType.Q4_0, TensorType.Q4_1, TensorType.Q4_K})
