"""Panels: how a quantised matrix is laid out, and which matrices have no such layout."""

import dataclasses

import numpy as np
import pytest

from services.worker.llm.adapters.panels import pack
from services.worker.llm.domain.quantised import QuantisedMatrix
from tests.unit.worker.llm.adapters.reference_ops import random_matrix

MATRIX = random_matrix(np.random.default_rng(1), 20, 64, 4)


@pytest.mark.parametrize(("bits", "width"), [(4, 256), (8, 512)])
def test_shapes(bits: int, width: int) -> None:
    """Rows are filled up to panels of 16, and a block's weights and scales lie together."""
    weight, scales = pack(random_matrix(np.random.default_rng(2), 20, 96, bits))
    assert (weight.shape, weight.dtype) == ((2, 3, width), np.dtype(np.uint8))
    assert (scales.shape, scales.dtype) == ((2, 3, 32), np.dtype(np.float16))


def test_where_a_weight_of_four_bits_lies() -> None:
    """Input k of column c is in group k / 4; two groups share 64 bytes, the first in the low nibbles."""
    weight, _ = pack(MATRIX)
    for row, k in ((0, 0), (5, 3), (15, 4), (17, 37), (19, 63)):
        group = k % 32 // 4
        byte = weight[row // 16, k // 32, group // 2 * 64 + row % 16 * 4 + k % 4]
        assert (byte >> 4 * (group % 2)) & 15 == MATRIX.q[row, k // 32, k % 32]


def test_where_a_weight_of_eight_bits_lies() -> None:
    """Input k of column c is in group k / 4, after the columns before it."""
    matrix = random_matrix(np.random.default_rng(3), 17, 32, 8)
    weight, scales = pack(matrix)
    for row, k in ((0, 0), (9, 18), (16, 31)):
        assert weight[row // 16, 0, k // 4 * 64 + row % 16 * 4 + k % 4] == matrix.q[row, 0, k]
        assert scales[row // 16, 0, row % 16] == matrix.scale[row, 0]
        assert scales[row // 16, 0, 16 + row % 16] == matrix.minimum[row, 0]


def test_rows_that_fill_up_are_zero() -> None:
    """What no row of the matrix has said adds nothing."""
    _, scales = pack(MATRIX)
    assert not scales[1, :, 4:16].any()
    assert not scales[1, :, 20:].any()


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        pytest.param(dataclasses.replace(MATRIX, bits=5), "5 bits", id="other-bits"),
        pytest.param(
            dataclasses.replace(MATRIX, q=MATRIX.q + np.uint8(16)), "above 15", id="wide-weights"
        ),
        pytest.param(
            dataclasses.replace(MATRIX, q=MATRIX.q.astype(np.int8)), "not uint8", id="other-type"
        ),
        pytest.param(
            dataclasses.replace(MATRIX, q=MATRIX.q.reshape(20, 1, 64)), "32", id="other-blocks"
        ),
        pytest.param(
            dataclasses.replace(MATRIX, scale=MATRIX.scale[:, :1]), "scale has", id="few-scales"
        ),
        pytest.param(
            dataclasses.replace(MATRIX, minimum=MATRIX.minimum - 70000), "minimum", id="too-large"
        ),
        pytest.param(
            dataclasses.replace(MATRIX, scale=MATRIX.scale * np.nan), "scale holds", id="nan"
        ),
    ],
)
def test_what_cannot_be_packed(matrix: QuantisedMatrix, said: str) -> None:
    """A matrix that is not as it says is refused with what is wrong."""
    with pytest.raises(ValueError, match=said):
        pack(matrix)
