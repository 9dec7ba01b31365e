"""Which tokens random numbers stand for: each as often as it is likely."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.llm.domain.candidates import Candidates
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.domain.step import Array
from services.worker.llm.domain.token_draw import draw

_NUMBERS = 400


def _probabilities(logits: Array, settings: SamplingSettings) -> Array:
    """The rules in their plainest form, in float64, with everything sorted."""
    weights = np.exp((logits.astype(np.float64) - logits.max()) / settings.temperature)
    weights[weights < settings.min_p] = 0
    order = np.lexsort((np.arange(len(weights)), -logits))
    if settings.top_k:
        weights[order[settings.top_k :]] = 0
    if settings.top_p < 1:
        running = np.cumsum(weights[order]) / weights.sum()
        last = int(np.searchsorted(running, settings.top_p))
        weights[weights < weights[order[min(last, len(order) - 1)]]] = 0
    whole: Array = weights / weights.sum()
    return whole


def _row(seed: int, size: int, spread: float) -> Array:
    return np.random.default_rng(seed).normal(0, spread, size).astype(np.float32)


def _counts(logits: Array, settings: SamplingSettings) -> Array:
    """How often each token comes if the numbers are spread evenly."""
    candidates = Candidates(logits)
    tokens = [draw(candidates, settings, (n + 0.5) / _NUMBERS) for n in range(_NUMBERS)]
    return np.bincount(tokens, minlength=len(logits))


@pytest.mark.parametrize("spread", [0.5, 3.0, 8.0], ids=["flat", "middling", "peaked"])
@pytest.mark.parametrize("size", [7, 300, 4000])
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(SamplingSettings(), id="temperature 1"),
        pytest.param(SamplingSettings(temperature=0.5), id="temperature 0.5"),
        pytest.param(SamplingSettings(top_p=0.9), id="top-p"),
        pytest.param(SamplingSettings(top_p=0.3, temperature=2.0), id="little top-p, hot"),
        pytest.param(SamplingSettings(top_k=5), id="top-k"),
        pytest.param(SamplingSettings(top_k=1000), id="more top-k than columns"),
        pytest.param(SamplingSettings(min_p=0.05), id="min-p"),
        pytest.param(SamplingSettings(top_k=20, top_p=0.8, min_p=0.01), id="all of them"),
    ],
)
def test_each_token_comes_as_often_as_it_is_likely(
    settings: SamplingSettings, size: int, spread: float
) -> None:
    """Numbers spread evenly give each token its share, to within the two at its borders."""
    logits = _row(size, size, spread)
    counts = _counts(logits, settings)
    expected = _probabilities(logits, settings) * _NUMBERS
    assert np.abs(counts - expected).max() <= 2


@given(
    st.lists(st.sampled_from([-np.inf, -5.0, 0.0, 0.5, 3.0]), min_size=1, max_size=150),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([SamplingSettings(), SamplingSettings(top_p=0.5), SamplingSettings(top_k=3)]),
)
def test_a_forbidden_token_never_comes(
    logits: list[float], random: float, settings: SamplingSettings
) -> None:
    """Tokens whose logit is minus infinity have no share, also at the ends of the row."""
    row = np.array([*logits, 1.0], np.float32)
    assert row[draw(Candidates(row), settings, random)] > -np.inf


def test_equal_logits_have_equal_shares() -> None:
    """A row without any difference is drawn from evenly."""
    counts = _counts(np.zeros(100, np.float32), SamplingSettings())
    assert counts.min() >= 3
    assert counts.max() <= 5


def test_top_k_takes_exactly_so_many_of_equal_ones() -> None:
    """Those with the lower ids."""
    row = np.zeros(1000, np.float32)
    drawn = {
        draw(Candidates(row), SamplingSettings(top_k=3), random)
        for random in np.linspace(0, 0.999, 50)
    }
    assert drawn == {0, 1, 2}


def test_the_largest_are_found_and_in_order() -> None:
    """Largest first, of equal ones the lower id, whether or not the row fills its table."""
    row = np.array([1, 9, 3, 9, 2] * 40, np.float32)
    ids, logits = Candidates(row).top(3)
    assert ids.tolist() == [1, 3, 6]
    assert logits.tolist() == [9, 9, 9]
    ids, _ = Candidates(row).top(500)
    assert len(ids) >= 200
