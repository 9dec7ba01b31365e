"""How often each token is in a text: what penalties go by."""

from collections.abc import Sequence

import numpy as np

from services.worker.llm.domain.generation import TokenId
from services.worker.llm.domain.step import Array

_ROOM = 64


class TokenCounts:
    """Counts of one text, as arrays that logits are changed with at once."""

    def __init__(self, prompt: Sequence[TokenId] = ()) -> None:
        """A prompt's tokens are seen, but counted 0 times."""
        seen = np.unique(np.asarray(prompt, np.int64))
        self._slots: dict[TokenId, int] = dict(zip(seen.tolist(), range(len(seen)), strict=True))
        self._ids = np.concatenate([seen, np.zeros(_ROOM, np.int64)])
        self._counts = np.zeros(len(self._ids), np.float32)

    def add(self, token: TokenId) -> None:
        """The text has it once more."""
        slot = self._slots.setdefault(token, len(self._slots))
        if slot == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[slot] = token
        self._counts[slot] += 1

    @property
    def ids(self) -> Array:
        """Each token seen, once."""
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> Array:
        """How often, float32, in the order of `ids`."""
        return self._counts[: len(self._slots)]
