"""Stored tensors become what the gguf package says they are."""

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from services.modelfiles.tensor_info import TensorType
from services.worker.llm.adapters.tensor_forms import Array, floats, quantised

ROWS, COLUMNS = 5, 512
EXACT = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K"]


def stored(kind: TensorType, seed: int = 0) -> Array:
    """Random bytes with sensible scales, whatever the type."""
    random = np.random.default_rng(seed)
    blocks = random.integers(
        0, 256, (ROWS * COLUMNS // kind.block, kind.block_bytes), dtype=np.uint8
    )
    halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    for at in halves.get(kind.name, (0,)):
        scales = random.normal(size=len(blocks)).astype("<f2")
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def by_gguf(raw: Array, kind: TensorType) -> Array:
    full: Array = dequantize(raw.reshape(ROWS, -1), GGMLQuantizationType(kind.number))
    return full


@pytest.mark.parametrize("name", EXACT)
def test_blocks_are_read_bit_for_bit(name: str) -> None:
    """Scale times integer plus minimum is the very value that the gguf package computes."""
    kind = TensorType[name]
    raw = stored(kind)
    matrix = quantised(raw, kind, (ROWS, COLUMNS))
    assert np.array_equal(matrix.dequantised(), by_gguf(raw, kind))
    assert matrix.q.max() < 2**matrix.bits
    assert matrix.bits == (4 if name.startswith("Q4") else 8)


def test_six_bits_are_as_near_as_eight_come() -> None:
    """Q6_K is within half a step of the 8-bit scale, but for the one value that 8 bits lack."""
    kind = TensorType.Q6_K
    raw = stored(kind)
    matrix = quantised(raw, kind, (ROWS, COLUMNS))
    error = np.abs(matrix.dequantised() - by_gguf(raw, kind)).reshape(matrix.q.shape)
    step = np.abs(matrix.scale)[..., None]
    assert (error <= step * 1.001).all()
    assert (error <= step * 0.501).mean() > 0.99


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_floats_become_eight_bits(name: str) -> None:
    """Every weight is within half a step; scales are halves, so that nothing is lost when they are packed."""
    kind = TensorType[name]
    values = np.random.default_rng(1).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    values[0, :32] = 0
    raw = quantize(values, GGMLQuantizationType(kind.number)).view(np.uint8).reshape(-1)
    exact = floats(raw, kind, (ROWS, COLUMNS))
    matrix = quantised(raw, kind, (ROWS, COLUMNS))
    error = np.abs(matrix.dequantised() - exact).reshape(matrix.q.shape)
    assert (error <= np.abs(matrix.scale)[..., None] * 0.56).all()  # the scale itself is rounded
    assert not matrix.dequantised()[0, :32].any()
    assert np.array_equal(matrix.scale, matrix.scale.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("name", [*EXACT, "Q6_K", "F32", "F16", "BF16"])
def test_floats_on_request_are_exact(name: str) -> None:
    """The float twin has the values of the file."""
    kind = TensorType[name]
    raw = stored(kind) if kind.block > 1 else np.zeros(ROWS * COLUMNS * kind.block_bytes, np.uint8)
    assert np.array_equal(floats(raw, kind, (ROWS, COLUMNS)), by_gguf(raw, kind).astype(np.float32))


@pytest.mark.parametrize("name", ["Q4_0", "Q5_0", "Q8_0", "Q6_K", "F32"])
def test_symmetric_types_have_zero_in_the_middle(name: str) -> None:
    """The minimum is the scale times minus half the range, exactly: stock operators need no more than the scale."""
    kind = TensorType[name]
    raw = stored(kind) if kind.block > 1 else np.ones(ROWS * COLUMNS, "<f4").view(np.uint8)
    matrix = quantised(raw, kind, (ROWS, COLUMNS))
    assert np.array_equal(matrix.minimum, -(2 ** (matrix.bits - 1)) * matrix.scale)


def test_what_is_not_finite_stays_so() -> None:
    """A scale or weight that is no number is not hidden: whoever reads the matrix can refuse it."""
    values = np.ones((1, 64), "<f4")
    values[0, 40] = np.nan
    matrix = quantised(values.view(np.uint8).reshape(-1), TensorType.F32, (1, 64))
    assert np.isfinite(matrix.scale).tolist() == [[True, False]]
