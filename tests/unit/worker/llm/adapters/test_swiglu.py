"""The operator SwiGLU in each variant."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from services.worker.llm.adapters.operators import VARIANTS
from tests.unit.worker.llm.adapters import reference_ops
from tests.unit.worker.llm.adapters.native_variants import built_library, variant_in_use
from tests.unit.worker.llm.adapters.one_operator import session

RANDOM = np.random.default_rng(8)


@pytest.fixture(params=VARIANTS)
def library(request: pytest.FixtureRequest) -> Iterator[Path]:
    with variant_in_use(request.param) as path:
        yield path


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("features", [1, 7, 16, 100, 1536])
def test_outputs(library: Path, features: int, activation: str) -> None:
    """Outputs are those of the reference, also beyond where the exponential function leaves its range."""
    gate_up = RANDOM.normal(size=(50, 2 * features)).astype(np.float32) * 4
    gate_up[0, 0], gate_up[1, 0] = 300, -300
    one = session(library, "SwiGLU", {"gate_up": np.float32}, activation=activation)
    made = one.run(None, {"gate_up": gate_up})[0]
    np.testing.assert_allclose(
        made, reference_ops.swiglu(gate_up, activation), rtol=2e-6, atol=2e-6
    )


def test_a_row_does_not_depend_on_its_neighbours(library: Path) -> None:
    """A row's outputs are the same bits alone and among others, with any number of threads."""
    gate_up = RANDOM.normal(size=(80, 2 * 1000)).astype(np.float32)
    one, two = (session(library, "SwiGLU", {"gate_up": np.float32}, threads=n) for n in (1, 3))
    whole = two.run(None, {"gate_up": gate_up})[0]
    for row in range(0, 80, 9):
        alone = one.run(None, {"gate_up": gate_up[row : row + 1]})[0]
        np.testing.assert_array_equal(alone[0], whole[row])


def test_what_is_no_number_stays_none(library: Path) -> None:
    """NaN goes through; its neighbours don't notice."""
    gate_up = np.ones((1, 40), np.float32)
    gate_up[0, 3] = np.nan
    one = session(library, "SwiGLU", {"gate_up": np.float32})
    assert np.isnan(one.run(None, {"gate_up": gate_up})[0]).nonzero()[1].tolist() == [3]


def test_inputs_and_attributes_that_do_not_fit() -> None:
    """What is not as it should be is named."""
    one = session(built_library(), "SwiGLU", {"gate_up": np.float32})
    with pytest.raises(Exception, match="not equally many"):
        one.run(None, {"gate_up": np.ones((2, 7), np.float32)})
    assert one.run(None, {"gate_up": np.ones((0, 8), np.float32)})[0].shape == (0, 4)
    with pytest.raises(Exception, match="activation is relu"):
        session(built_library(), "SwiGLU", {"gate_up": np.float32}, activation="relu")
