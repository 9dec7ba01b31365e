"""Texts that every server must begin with, nearly all of the time: greedy, from the model in 32 bits."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.llm.call import Asked
from benchmarks.llm.load import Load, run
from benchmarks.llm.prompts import Text
from benchmarks.serving.contender import Running

_PROMPTS = 12
_TOKENS = 16
_ALIKE = 10  # characters at the beginning
_RIGHT = 0.15  # of the texts: cut anywhere, they go on with a near tie more often than not
_CHANCE = 0.25  # of other prompts' texts at most


@dataclass(frozen=True, slots=True)
class Reference:
    """Questions and right answers."""

    asked: tuple[Asked, ...]
    texts: tuple[str, ...]

    def judge(self, texts: Sequence[str]) -> tuple[str, bool]:
        """What to say of a server's answers, and whether they are right. Neighbours' answers must not pass."""
        alike, control = self._alike(texts, 0), self._alike(texts, 1)
        count = len(self.texts)
        told = f"{alike} of {count} texts begin as they should; control (others' texts): {control}"
        return told, alike >= _RIGHT * count and control <= _CHANCE * count

    def _alike(self, texts: Sequence[str], shift: int) -> int:
        rights = (*self.texts[shift:], *self.texts[:shift])
        return sum(a[:_ALIKE] == b[:_ALIKE] for a, b in zip(texts, rights, strict=True))


def reference(
    text: Text, kept: Path, start: Callable[[Path], Running], until: Callable[[Running], float]
) -> Reference:
    """Asked of a server of the 32-bit model once, and kept in a file."""
    asked = questions(text)
    known = json.loads(kept.read_text()) if kept.is_file() else {}
    if known.get("prompts") != [one.prompt for one in asked]:
        with tempfile.TemporaryDirectory(prefix="ip-b-") as folder:
            running = start(Path(folder))
            try:
                until(running)
                answers = run(running.address, Load(asked=asked, concurrency=1))
            finally:
                running.stop()
        known = {"prompts": [one.prompt for one in asked], "texts": [a.text for a in answers]}
        kept.write_text(json.dumps(known))
    return Reference(asked, tuple(known["texts"]))


def questions(text: Text) -> tuple[Asked, ...]:
    """The same ones every time."""
    draw = np.random.default_rng(5)
    found = []
    for _ in range(_PROMPTS):
        prompt, count = text.cut(draw, int(draw.integers(24, 97)))
        found.append(Asked(prompt=prompt, prompt_tokens=count, max_tokens=_TOKENS))
    return tuple(found)
