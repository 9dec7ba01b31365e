"""The operator QLinear in each variant: right, the same bits whatever is computed beside, and strict."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.worker.llm.adapters.operators import VARIANTS
from services.worker.llm.adapters.panels import pack
from services.worker.llm.domain.quantised import Array
from tests.unit.worker.llm.adapters import reference_ops
from tests.unit.worker.llm.adapters.native_variants import built_library, variant_in_use
from tests.unit.worker.llm.adapters.one_operator import session

RANDOM = np.random.default_rng(7)
INPUTS: dict[str, Any] = {"x": np.float32, "weight": np.uint8, "scales": np.float16}


@pytest.fixture(params=VARIANTS)
def library(request: pytest.FixtureRequest) -> Iterator[Path]:
    with variant_in_use(request.param) as path:
        yield path


def activations(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (16, 32), (40, 96), (100, 576), (33, 1536)])
def test_outputs(library: Path, rows: int, columns: int, bits: int) -> None:
    """Outputs are those of the reference, for widths that fill panels and such that don't, with bias and without."""
    matrix = reference_ops.random_matrix(RANDOM, rows, columns, bits)
    weight, scales = pack(matrix)
    bias = activations(rows)
    x = activations(13, columns)
    x[4] = 0
    fed = {"x": x, "weight": weight, "scales": scales}
    plain = session(library, "QLinear", INPUTS, columns=rows, bits=bits).run(None, fed)[0]
    expected = reference_ops.qlinear(x, matrix)
    largest = np.abs(expected).max()
    np.testing.assert_allclose(plain, expected, atol=3e-6 * largest)
    assert not np.signbit(plain[4]).any()
    biased = session(library, "QLinear", {**INPUTS, "bias": np.float32}, columns=rows, bits=bits)
    np.testing.assert_array_equal(biased.run(None, {**fed, "bias": bias})[0], plain + bias)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_does_not_depend_on_its_neighbours(library: Path, bits: int) -> None:
    """A row's outputs are the same bits alone, among any number of others, and with any number of threads."""
    matrix = reference_ops.random_matrix(RANDOM, 200, 288, bits)
    weight, scales = pack(matrix)
    x = activations(70, 288)
    one, two = (
        session(library, "QLinear", INPUTS, threads=n, columns=200, bits=bits) for n in (1, 3)
    )

    def run(which: Any, rows: Array) -> Array:
        result: Array = which.run(None, {"x": rows, "weight": weight, "scales": scales})[0]
        return result

    whole = run(one, x)
    np.testing.assert_array_equal(run(two, x), whole)
    for count in range(1, 30):
        np.testing.assert_array_equal(run(two, x[count : 2 * count]), whole[count : 2 * count])


def test_a_row_without_numbers_spoils_itself_alone(library: Path) -> None:
    """NaN and infinity come out where they went in; other rows don't notice."""
    matrix = reference_ops.random_matrix(RANDOM, 40, 64, 4)
    weight, scales = pack(matrix)
    x = activations(3, 64)
    one = session(library, "QLinear", INPUTS, columns=40, bits=4)
    clean = one.run(None, {"x": x, "weight": weight, "scales": scales})[0]
    for poison in (np.nan, np.inf, -np.inf):
        x[1, 37] = poison
        spoilt = one.run(None, {"x": x, "weight": weight, "scales": scales})[0]
        assert not np.isfinite(spoilt[1]).any()
        np.testing.assert_array_equal(spoilt[[0, 2]], clean[[0, 2]])


def test_extremes(library: Path) -> None:
    """The largest weights times the largest activations overflow nowhere; the smallest floats count as zero."""
    matrix = reference_ops.random_matrix(RANDOM, 16, 64, 8)
    matrix.q[:] = 255
    weight, scales = pack(matrix)
    one = session(library, "QLinear", INPUTS, columns=16, bits=8)
    for value in (1.0, -1.0, 1e-38, -1e-45):
        x = np.full((1, 64), value, np.float32)
        expected = reference_ops.qlinear(x, matrix) if abs(value) == 1 else np.zeros((1, 16))
        np.testing.assert_allclose(
            one.run(None, {"x": x, "weight": weight, "scales": scales})[0], expected, rtol=1e-5
        )


@pytest.mark.parametrize("shape", [(0, 32), (2, 3, 32), (32,)])
def test_any_rank(shape: tuple[int, ...]) -> None:
    """Leading dimensions are kept, also when there is nothing in them."""
    weight, scales = pack(reference_ops.random_matrix(RANDOM, 5, 32, 4))
    one = session(built_library(), "QLinear", INPUTS, columns=5, bits=4)
    made = one.run(None, {"x": activations(*shape), "weight": weight, "scales": scales})[0]
    assert made.shape == (*shape[:-1], 5)


WEIGHT, SCALES = pack(reference_ops.random_matrix(RANDOM, 20, 64, 4))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({"x": activations(2, 63)}, "no multiple of 32", id="odd-width"),
        pytest.param(
            {"x": activations(2, 96)},
            r"weight has the shape \[2, 2, 256\], not \[2, 3, 256\]",
            id="width",
        ),
        pytest.param({"x": activations(2, 0)}, "no multiple of 32", id="no-width"),
        pytest.param({"x": np.array(1, np.float32)}, "x has the shape", id="scalar"),
        pytest.param(
            {"weight": WEIGHT[:1]}, r"weight has the shape \[1, 2, 256\]", id="few-panels"
        ),
        pytest.param({"weight": WEIGHT.ravel()}, "3 dimensions", id="flat-weight"),
        pytest.param(
            {"scales": SCALES[:, :1]}, r"scales has the shape \[2, 1, 32\]", id="few-scales"
        ),
        pytest.param(
            {"bias": activations(19)}, r"bias has the shape \[19\], not \[20\]", id="short-bias"
        ),
    ],
)
def test_inputs_that_do_not_fit(changed: dict[str, Array], said: str) -> None:
    """What is not as it should be is named, and nothing is computed."""
    fed = {"x": activations(2, 64), "weight": WEIGHT, "scales": SCALES, "bias": activations(20)}
    one = session(built_library(), "QLinear", {**INPUTS, "bias": np.float32}, columns=20, bits=4)
    with pytest.raises(Exception, match=said):
        one.run(None, {**fed, **changed})


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"columns": 0, "bits": 4}, "columns is 0"),
        ({"bits": 4}, "columns is 0"),
        ({"columns": 2**63 - 1, "bits": 4}, "columns is 9223372036854775807"),
        ({"columns": 20, "bits": 5}, "bits is 5"),
    ],
)
def test_attributes_out_of_range(attributes: dict[str, int], said: str) -> None:
    """A graph with attributes that mean nothing is not loaded."""
    with pytest.raises(Exception, match=said):
        session(built_library(), "QLinear", INPUTS, **attributes)


def test_a_graph_with_other_types_is_not_loaded() -> None:
    """The runtime knows the operator's types and refuses others."""
    with pytest.raises(Exception, match="QLinear"):
        session(built_library(), "QLinear", {**INPUTS, "scales": np.float32}, columns=20, bits=4)
