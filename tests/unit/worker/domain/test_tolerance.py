"""What counts as the same answer, per datatype."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from services.worker.domain.tolerance import largest_of, widest_gap

NAN, INF = float("nan"), float("inf")


def gap(alone: Any, together: Any, dtype: Any) -> str | None:
    a, b = np.array(alone, dtype), np.array(together, dtype)
    found = widest_gap(a, b, largest_of(a))
    return None if found is None else f"{list(found.index)} {found}"


@pytest.mark.parametrize(
    ("alone", "together", "dtype"),
    [
        pytest.param([1.0, 2.0], [1.0009, 2.0], np.float32, id="single: a thousandth of itself"),
        pytest.param([1e-6, 2.0], [2e-4, 2.0], np.float32, id="single: little beside the largest"),
        pytest.param([0.0, 0.0], [9e-8, 0.0], np.float32, id="single: what should cancel out"),
        pytest.param([1.0], [1.000009], np.float64, id="double"),
        pytest.param([1.0], [1.009], np.float16, id="half"),
        pytest.param([1.0], [1.05], ml_dtypes.bfloat16, id="bfloat"),
        pytest.param([NAN, INF, -INF], [NAN, INF, -INF], np.float32, id="not numbers"),
        pytest.param([1, -2], [1, -2], np.int64, id="whole numbers"),
        pytest.param(["a"], ["a"], object, id="strings"),
        pytest.param([True], [True], np.bool_, id="booleans"),
        pytest.param([], [], np.float32, id="nothing"),
        pytest.param(1.0, 1.0, np.float32, id="a scalar"),
    ],
)
def test_within_tolerance(alone: Any, together: Any, dtype: Any) -> None:
    """Kernels sum in another order."""
    assert gap(alone, together, dtype) is None


@pytest.mark.parametrize(
    ("alone", "together", "dtype", "words"),
    [
        pytest.param(
            [1.0, 2.0],
            [1.0, 2.01],
            np.float32,
            "[1] 2 alone, 2.01 together, a difference of 0.01; allowed 0.0022",
            id="single",
        ),
        pytest.param([1e-5, 2e-5], [2e-5, 2e-5], np.float32, "[0] 1e-05 alone", id="all small"),
        pytest.param([1.0], [1.0001], np.float64, "[0] 1 alone", id="double"),
        pytest.param([1.0], [1.02], np.float16, "[0] 1 alone", id="half"),
        pytest.param([1.0], [1.1], ml_dtypes.bfloat16, "[0] 1 alone, 1.10156", id="bfloat"),
        pytest.param([1.0], [NAN], np.float32, "[0] 1 alone, nan together", id="no number"),
        pytest.param([INF], [1.0], np.float32, "[0] inf alone, 1 together", id="infinity"),
        pytest.param([INF], [-INF], np.float32, "[0] inf alone, -inf together", id="signs"),
        pytest.param(
            [[1, 7]],
            [[1, 8]],
            np.int64,
            "[0, 1] 7 alone, 8 together, a difference of 1; allowed 0",
            id="whole",
        ),
        pytest.param([0], [255], np.uint8, "a difference of 255", id="unsigned"),
        pytest.param(["a"], ["b"], object, "[0] 'a' alone, 'b' together", id="strings"),
        pytest.param([True], [False], np.bool_, "[0] True alone, False together", id="booleans"),
    ],
)
def test_beyond_tolerance(alone: Any, together: Any, dtype: Any, words: str) -> None:
    """The widest gap is told with place, both values, and what is allowed."""
    found = gap(alone, together, dtype)
    assert found is not None
    assert found.startswith(words) or words in found
