"""Prompts of so many tokens, cut from the text that every Python carries about its own language."""

from __future__ import annotations

import pydoc_data.topics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Text:
    """A long English text and the tokenizer that counts."""

    encode: Callable[[str], list[int]]

    @cached_property
    def words(self) -> list[str]:
        topics = pydoc_data.topics.topics
        return " ".join(topics[name] for name in sorted(topics)).split()

    def cut(self, draw: np.random.Generator, tokens: int) -> tuple[str, int]:
        """Words from a random place that make `tokens` tokens or hardly fewer; and how many they make."""
        begin = int(draw.integers(0, len(self.words) - tokens))
        least, most = 1, tokens + 1  # a word has a token at least
        while most - least > 1:
            middle = (least + most) // 2
            if len(self.encode(self._joined(begin, middle))) <= tokens:
                least = middle
            else:
                most = middle
        text = self._joined(begin, least)
        return text, len(self.encode(text))

    def _joined(self, begin: int, count: int) -> str:
        return " ".join(self.words[begin : begin + count])
