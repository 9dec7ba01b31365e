"""What a precision costs."""

import numpy as np
import pytest

from services.worker.llm.domain.accuracy import Comparison


def test_equal_logits_cost_nothing() -> None:
    """Neither does a constant that is added to all of them."""
    logits = np.random.default_rng(0).normal(size=(7, 50)).astype(np.float32)
    comparison = Comparison()
    comparison.add(logits, logits + np.float32(3))
    found = comparison.result()
    assert found.kl == pytest.approx(0, abs=1e-6)
    assert (found.argmax_agreement, found.tokens) == (1.0, 7)


def test_the_divergence_is_that_of_the_shares() -> None:
    """Two tokens, even and three to one: half of log(2/1) and half of log(2/3)."""
    comparison = Comparison()
    comparison.add(np.zeros((1, 2)), np.log([[3.0, 1.0]]))
    expected = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    assert comparison.result().kl == pytest.approx(expected)


def test_places_are_counted_over_all_pieces() -> None:
    """One of four places has another likeliest token; huge logits overflow nothing."""
    comparison = Comparison()
    exact = np.array([[1e4, 0], [0, 1e4]], np.float32)
    comparison.add(exact, exact)
    comparison.add(exact, exact[:, ::-1] * [[1], [0]])
    found = comparison.result()
    assert (found.argmax_agreement, found.tokens) == (0.5, 4)
    assert np.isfinite(found.kl)
