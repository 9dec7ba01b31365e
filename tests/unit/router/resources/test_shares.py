"""Shares as whole numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.resources.shares import TOTAL, weights


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param([0.9, 0.1], [900_000, 100_000], id="exact"),
        pytest.param([1 / 3] * 3, [333_334, 333_333, 333_333], id="first-gets-the-rest"),
        pytest.param([1.0, 0.0], [1_000_000, 0], id="nothing-stays-nothing"),
        pytest.param([1 - 1e-9, 1e-9], [999_999, 1], id="tiny-gets-one"),
    ],
)
def test_largest_remainder(shares: list[float], expected: list[int]) -> None:
    """Each share gets its whole part; the largest remainders get what is left."""
    assert weights(shares) == expected


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=32))
def test_they_always_add_up(declared: list[float]) -> None:
    """Whatever the weights, millionths add up to one million and nobody is left out."""
    total = sum(declared)
    parts = weights([weight / total for weight in declared])
    assert sum(parts) == TOTAL
    assert min(parts) >= 1
