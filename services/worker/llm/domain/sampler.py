"""Chooses the next token of each text of a step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from services.rpc.errors import InternalError
from services.worker.llm.domain.candidates import Candidates
from services.worker.llm.domain.generation import TokenId, TokenLogprob, TopLogprob
from services.worker.llm.domain.step import Array
from services.worker.llm.domain.text_sampling import TextSampling
from services.worker.llm.domain.token_draw import draw


@dataclass(frozen=True, slots=True)
class Chosen:
    """What follows one text, or why nothing can."""

    token_id: TokenId
    logprob: TokenLogprob | None = None  # if it was asked for
    error: InternalError | None = None


class SampledText(Protocol):
    """What is asked of a text."""

    @property
    def sampling(self) -> TextSampling:
        """Its settings and tokens so far."""
        ...


def choose(logits: Array, texts: Sequence[SampledText]) -> list[Chosen]:
    """A token for each text: row r of the logits is what the model says of the r-th, and may be written to.

    Changes no text: that is done by taking the token.
    """
    if not texts:
        return []
    logits = logits[:, : texts[0].sampling.vocabulary_size]
    chosen = []
    for row, (text, place) in enumerate(zip(texts, logits.argmax(axis=1).tolist(), strict=True)):
        sampling = text.sampling
        # The largest of numbers among which there is a NaN is a NaN.
        if not math.isfinite(logits.item(row, place)):
            chosen.append(_not_numbers())
        elif sampling.greedy and sampling.plain and not sampling.settings.logprobs:
            chosen.append(Chosen(place))
        else:
            chosen.append(_choose(logits[row], sampling))
    return chosen


def _not_numbers() -> Chosen:
    return Chosen(0, error=InternalError("the model's logits are not numbers", reason="NOT_FINITE"))


def _choose(row: Array, sampling: TextSampling) -> Chosen:
    settings = sampling.settings
    told = _Logprobs(row, settings.top_logprobs) if settings.logprobs else None
    sampling.adjust(row)
    if sampling.greedy:
        token = int(row.argmax())
    else:
        candidates = Candidates(row)
        if not np.isfinite(candidates.highest):
            return _not_numbers()
        token = draw(candidates, settings, sampling.random())
    return Chosen(token, None if told is None else told.of(token))


class _Logprobs:
    """The model's own distribution, before it is changed."""

    def __init__(self, row: Array, top: int) -> None:
        self._row = row.copy()
        candidates = Candidates(row)
        highest = float(candidates.highest)
        self._log_total = highest + math.log(float(np.exp(row - candidates.highest).sum()))
        self._top: tuple[TopLogprob, ...] = ()
        if top:
            ids, logits = candidates.top(top)
            pairs = zip(ids.tolist(), (logits - self._log_total).tolist(), strict=True)
            self._top = tuple(TopLogprob(token, logprob) for token, logprob in pairs)

    def of(self, token: TokenId) -> TokenLogprob:
        """A chosen token's."""
        return TokenLogprob(token, float(self._row[token]) - self._log_total, self._top)
