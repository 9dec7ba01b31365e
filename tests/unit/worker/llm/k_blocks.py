"""Random blocks of GGML's K types, which the gguf package reads but doesn't write."""

from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType

Array = np.ndarray[Any, np.dtype[Any]]
_BLOCK = 256


def k_blocks(
    shape: tuple[int, ...], kind: GGMLQuantizationType, random: np.random.Generator
) -> Array:
    """Rows of stored blocks whose weights are about as large as trained ones."""
    blocks = int(np.prod(shape)) // _BLOCK
    spread = shape[-1] ** -0.5
    make = {
        GGMLQuantizationType.Q4_K: _q4_k,
        GGMLQuantizationType.Q5_K: _q5_k,
        GGMLQuantizationType.Q6_K: _q6_k,
    }
    return make[kind](blocks, spread, random).reshape(shape[0], -1)


def _q4_k(blocks: int, spread: float, random: np.random.Generator) -> Array:
    scale = np.full(blocks, spread / (4.6 * 32))  # of 16 levels; block scales are 32 in the mean
    return np.concatenate(
        [_halves(scale, 7.5 * scale), _scales(blocks, random), _bytes(random, blocks, 128)], -1
    )


def _q5_k(blocks: int, spread: float, random: np.random.Generator) -> Array:
    scale = np.full(blocks, spread / (9.2 * 32))
    parts = [_halves(scale, 15.5 * scale), _scales(blocks, random), _bytes(random, blocks, 160)]
    return np.concatenate(parts, -1)


def _q6_k(blocks: int, spread: float, random: np.random.Generator) -> Array:
    signs = random.choice([-1, 1], (blocks, 16))
    scales = (signs * random.integers(16, 49, (blocks, 16))).astype(np.int8).view(np.uint8)
    scale = _halves(np.full(blocks, spread / (18.5 * 32)))
    return np.concatenate([_bytes(random, blocks, 192), scales, scale], -1)


def _scales(blocks: int, random: np.random.Generator) -> Array:
    """Eight scales of 6 bits, and as many minima, equal to them: weights are around zero."""
    scales = random.integers(16, 49, (blocks, 8), dtype=np.uint8)
    first, last = scales[:, :4], scales[:, 4:]
    packed = first | ((last >> 4) << 6)
    return np.concatenate([packed, packed, (last & 15) | ((last & 15) << 4)], -1)


def _halves(*values: Array) -> Array:
    return np.stack(values, -1).astype("<f2").view(np.uint8)


def _bytes(random: np.random.Generator, blocks: int, count: int) -> Array:
    return random.integers(0, 256, (blocks, count), dtype=np.uint8)
