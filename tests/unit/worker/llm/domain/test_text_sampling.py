"""What settings make of logits, and random numbers."""

import numpy as np
import pytest

from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.domain.step import Array
from services.worker.llm.domain.text_sampling import TextSampling, random_key
from services.worker.llm.domain.token_counts import TokenCounts


def _adjusted(
    settings: SamplingSettings,
    logits: list[float],
    *,
    prompt: tuple[int, ...] = (),
    text: tuple[int, ...] = (),
    end_ids: tuple[int, ...] = (),
) -> Array:
    sampling = TextSampling(
        settings, prompt, key=random_key(0, 0), end_ids=frozenset(end_ids), vocabulary_size=9
    )
    for token in text:
        sampling.took(token)
    row = np.array(logits, np.float32)
    assert not sampling.plain
    sampling.adjust(row)
    return row


def test_repetition_divides_what_is_likely_and_multiplies_what_is_not() -> None:
    """Of each token in prompt and text once, however often it is there."""
    settings = SamplingSettings(repetition_penalty=2.0)
    row = _adjusted(settings, [4, -4, 4, 4], prompt=(0, 1, 0), text=(2, 2))
    assert row.tolist() == [2, -8, 2, 4]


@pytest.mark.parametrize("factor", [5e-324, 1e-300, 1e-38])
def test_the_smallest_factor_leaves_numbers(factor: float) -> None:
    """What a caller may ask for is no reason for logits that are none."""
    row = _adjusted(SamplingSettings(repetition_penalty=factor), [100, -100, 0], prompt=(0, 1, 2))
    assert np.isfinite(row).all()
    assert row.argmax() == 0


def test_presence_counts_once_and_frequency_each_time() -> None:
    """Of tokens in the text only, not of the prompt's."""
    settings = SamplingSettings(presence_penalty=1.0, frequency_penalty=0.5)
    row = _adjusted(settings, [4, 4, 4], prompt=(0,), text=(1, 2, 2))
    assert row.tolist() == [4, 2.5, 2]


def test_all_penalties_together() -> None:
    """The prompt's tokens are only repeated, the text's have all of it."""
    settings = SamplingSettings(repetition_penalty=2.0, presence_penalty=1.0)
    assert _adjusted(settings, [4, 4, 4], prompt=(0,), text=(1,)).tolist() == [2, 1, 4]


def test_bias_is_added() -> None:
    """By token."""
    settings = SamplingSettings(logit_bias={1: -100.0, 2: 5.0})
    assert _adjusted(settings, [1, 1, 1]).tolist() == [1, -99, 6]


def test_ends_are_forbidden_until_the_least_number_of_tokens() -> None:
    """One token before they can't come, with the next they may."""
    settings = SamplingSettings(min_tokens=2)
    row = _adjusted(settings, [1, 2, 3], text=(1,), end_ids=(0, 2))
    assert row.tolist() == [-np.inf, 2, -np.inf]
    sampling = TextSampling(
        settings, (), key=random_key(0, 0), end_ids=frozenset({0}), vocabulary_size=3
    )
    sampling.took(1)
    assert not sampling.plain
    sampling.took(1)
    assert sampling.plain


@pytest.mark.parametrize(
    ("settings", "greedy"),
    [
        pytest.param(SamplingSettings(), False, id="the API's defaults"),
        pytest.param(SamplingSettings(temperature=0), True, id="temperature 0"),
        pytest.param(SamplingSettings(temperature=1e-300), True, id="as good as 0"),
        pytest.param(SamplingSettings(top_k=1), True, id="one token only"),
    ],
)
def test_greedy(settings: SamplingSettings, greedy: bool) -> None:
    """Where nothing is left to chance."""
    key = random_key(0, 0)
    sampling = TextSampling(settings, (), key=key, end_ids=frozenset(), vocabulary_size=3)
    assert sampling.greedy is greedy


def test_random_numbers_depend_on_seed_index_and_place_only() -> None:
    """Equal for equal ones, different for any other, and spread evenly."""

    def numbers(seed: int, index: int) -> list[float]:
        key = random_key(seed, index)
        sampling = TextSampling(
            SamplingSettings(), (), key=key, end_ids=frozenset(), vocabulary_size=3
        )
        drawn = []
        for _ in range(2000):
            drawn.append(sampling.random())
            sampling.took(0)
        return drawn

    first = numbers(7, 0)
    assert first == numbers(7, 0)
    everything = first + numbers(7, 1) + numbers(-7, 0) + numbers(8, 0)
    assert len(set(everything)) == len(everything)
    assert all(0 <= number < 1 for number in everything)
    counts, _ = np.histogram(everything, bins=10, range=(0, 1))
    assert counts.min() > 650
    assert counts.max() < 950


def test_counts_grow_past_their_first_room() -> None:
    """Every token is there once, with how often it came."""
    counts = TokenCounts([5, 5, 3])
    for token in [*range(500), *range(400)]:
        counts.add(token)
    found = dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True))
    assert found == {token: 2.0 if token < 400 else 1.0 for token in range(500)}
