"""What one text's settings and tokens so far make of its logits, and its random numbers."""

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from services.worker.llm.domain.generation import TokenId
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.domain.step import Array
from services.worker.llm.domain.token_counts import TokenCounts

_COLDEST = 1e-5  # below it, weights are those of the greedy choice
_LEAST_FACTOR = 1e-6  # a smaller one changes no choice, and logits would become infinite
_PLACES = 2**53  # numbers that a float has between 0 and 1, evenly


class TextSampling:
    """Changes logits in the order penalties, bias, forbidden tokens; temperature comes after them."""

    def __init__(
        self,
        settings: SamplingSettings,
        prompt: Sequence[TokenId],
        *,
        key: bytes,
        end_ids: frozenset[TokenId],
        vocabulary_size: int,
    ) -> None:
        """`key` stands for seed and index; `end_ids` are all tokens that would end the text."""
        self.settings = settings
        self.end_ids = end_ids
        self.vocabulary_size = vocabulary_size  # ids are below it, however many logits there are
        self.count = 0  # tokens so far
        self._key = key
        self._repeats = settings.repetition_penalty != 1.0
        self._penalised = bool(settings.presence_penalty or settings.frequency_penalty)
        self._prompt = prompt
        self._bias_ids = np.fromiter(settings.logit_bias.keys(), np.int64)
        self._bias = np.fromiter(settings.logit_bias.values(), np.float32)
        self._forbidden = np.fromiter(sorted(end_ids), np.int64)

    @property
    def greedy(self) -> bool:
        """Nothing is left to chance."""
        return self.settings.temperature < _COLDEST or self.settings.top_k == 1

    @property
    def plain(self) -> bool:
        """Logits are taken as they are."""
        return (
            not (self._repeats or self._penalised)
            and not len(self._bias_ids)
            and self.count >= self.settings.min_tokens
        )

    @cached_property
    def _counts(self) -> TokenCounts:
        """Made when the first token is chosen: texts that wait are many, and a prompt may be long."""
        return TokenCounts(self._prompt if self._repeats else ())

    def took(self, token: TokenId) -> None:
        """The text goes on with this token."""
        self.count += 1
        if self._repeats or self._penalised:
            self._counts.add(token)

    def adjust(self, logits: Array) -> None:
        """Change one row in place."""
        if self._repeats or self._penalised:
            self._penalise(logits, self._counts)
        if len(self._bias_ids):
            logits[self._bias_ids] += self._bias
        if self.count < self.settings.min_tokens:
            logits[self._forbidden] = -np.inf

    def _penalise(self, logits: Array, counts: TokenCounts) -> None:
        settings, ids = self.settings, counts.ids
        values = logits[ids]
        if self._repeats:
            factor = np.float32(max(settings.repetition_penalty, _LEAST_FACTOR))
            values = np.where(values > 0, values / factor, values * factor)
        if self._penalised:
            often = counts.counts
            values -= np.float32(settings.frequency_penalty) * often
            values -= np.float32(settings.presence_penalty) * (often > 0)
        logits[ids] = values

    def random(self) -> float:
        """0 to below 1, for the next token: a hash of seed, index and place, so that no other text has a part in it."""
        place = self.count.to_bytes(8, "little")
        digest = hashlib.blake2b(place, key=self._key, digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> 11) / _PLACES


def random_key(seed: int, index: int) -> bytes:
    """What stands for a seed and the index of a text."""
    return seed.to_bytes(16, "little", signed=True) + index.to_bytes(8, "little")
