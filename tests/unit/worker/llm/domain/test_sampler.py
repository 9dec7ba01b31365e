"""The choice of tokens for all texts of a step."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from services.rpc.errors import Kind
from services.worker.llm.domain.sampler import choose
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.domain.step import Array
from services.worker.llm.domain.text_sampling import TextSampling, random_key

_SIZE = 500


@dataclass(frozen=True, slots=True)
class _Text:
    sampling: TextSampling


def _text(seed: int = 0, **settings: Any) -> _Text:
    sampling = TextSampling(
        SamplingSettings(**settings),
        (1, 2, 3),
        key=random_key(seed, 0),
        end_ids=frozenset({0}),
        vocabulary_size=_SIZE,
    )
    return _Text(sampling)


def _logits(rows: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 4, (rows, _SIZE)).astype(np.float32)


_KINDS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {},
    {"top_p": 0.9, "temperature": 0.7},
    {"top_k": 40, "repetition_penalty": 1.3},
    {"min_p": 0.1, "frequency_penalty": 1.0},
    {"temperature": 0.0, "presence_penalty": 1.5, "logprobs": True, "top_logprobs": 3},
]


def test_a_choice_does_not_depend_on_who_is_beside_it() -> None:
    """Each row alone, and all of them in another order, give what all together give, bit for bit."""
    logits = _logits(len(_KINDS))
    texts = [_text(n, **kind) for n, kind in enumerate(_KINDS)]
    together = choose(logits.copy(), texts)
    alone = [choose(logits[n : n + 1].copy(), [text])[0] for n, text in enumerate(texts)]
    backwards = choose(logits[::-1].copy(), texts[::-1])[::-1]
    assert together == alone == backwards


def test_choosing_changes_no_text() -> None:
    """The same step twice gives the same tokens."""
    texts = [_text(n, **kind) for n, kind in enumerate(_KINDS)]
    logits = _logits(len(_KINDS))
    assert choose(logits.copy(), texts) == choose(logits.copy(), texts)


def test_rows_wider_than_the_vocabulary_are_cut() -> None:
    """A row's places beyond the tokens, however large, are never chosen."""
    wide = np.full((2, _SIZE + 12), 50.0, np.float32)
    wide[:, :_SIZE] = _logits(2)
    chosen = choose(wide, [_text(temperature=0.0), _text()])
    assert all(one.token_id < _SIZE for one in chosen)
    assert chosen[0].token_id == int(_logits(2)[0].argmax())


@pytest.mark.parametrize("bad", [math.nan, math.inf], ids=["NaN", "infinite"])
@pytest.mark.parametrize("settings", _KINDS, ids=str)
def test_logits_that_are_not_numbers_end_their_request_only(
    bad: float, settings: dict[str, Any]
) -> None:
    """The row has an INTERNAL error; the others have their tokens."""
    logits = _logits(3)
    logits[1, 17] = bad
    before, broken, after = choose(logits, [_text(), _text(**settings), _text(temperature=0.0)])
    assert broken.error is not None
    assert broken.error.kind is Kind.INTERNAL
    assert broken.error.reason == "NOT_FINITE"
    assert before.error is None
    assert after.error is None


def test_a_row_of_nothing_possible_is_an_error() -> None:
    """All logits minus infinity: there is no token to choose."""
    logits = np.full((1, _SIZE), -np.inf, np.float32)
    assert choose(logits, [_text()])[0].error is not None


def test_logprobs_are_those_of_the_model_itself() -> None:
    """Before temperature, penalties and bias: natural logarithms of the row's softmax, likeliest first."""
    logits = _logits(1)
    row = logits[0].astype(np.float64)
    expected = row - row.max() - np.log(np.exp(row - row.max()).sum())
    settings: dict[str, Any] = {
        "temperature": 0.0,
        "logit_bias": {7: 100.0},
        "logprobs": True,
        "top_logprobs": 4,
    }
    chosen = choose(logits, [_text(**settings)])[0]
    assert chosen.token_id == 7
    assert chosen.logprob is not None
    assert chosen.logprob.logprob == pytest.approx(expected[7], abs=1e-5)
    best = np.argsort(-expected)[:4]
    assert [top.token_id for top in chosen.logprob.top] == best.tolist()
    assert [top.logprob for top in chosen.logprob.top] == pytest.approx(expected[best], abs=1e-5)


def test_without_being_asked_no_logprobs_are_told() -> None:
    """Neither greedy nor drawn."""
    assert [one.logprob for one in choose(_logits(2), [_text(), _text(temperature=0.0)])] == [
        None
    ] * 2


def test_no_texts_no_tokens() -> None:
    """A step that only computes pieces of prompts chooses nothing."""
    assert choose(np.zeros((0, _SIZE), np.float32), []) == []
