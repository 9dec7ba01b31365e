"""Where masses fall in running sums."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.worker.llm.domain.running_sums import RunningSums


@given(st.lists(st.integers(0, 3), min_size=1, max_size=700), st.floats(0, 1, exclude_max=True))
def test_a_mass_falls_where_summing_one_by_one_says(weights: list[int], share: float) -> None:
    """In the first weight whose running sum is above it, however many pieces are summed at once."""
    if not any(weights):
        weights.append(1)
    sums = RunningSums(np.array(weights, np.float32))
    assert sums.total == sum(weights)
    mass = share * sum(weights)
    expected = next(n for n in range(len(weights)) if sum(weights[: n + 1]) > mass)
    assert sums.find(mass) == (expected, sum(weights[: expected + 1]))


def test_what_is_beyond_falls_in_the_last_weight() -> None:
    """Not in the zeros behind it."""
    sums = RunningSums(np.array([1, 2, 0, 0], np.float32))
    assert sums.find(3.0) == (1, 3.0)
    assert sums.find(99.0) == (1, 3.0)
