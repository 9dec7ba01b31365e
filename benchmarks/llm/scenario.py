"""What is asked of every server: the scenarios, each with prompts that no cache has seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.llm.call import Asked
from benchmarks.llm.load import Load
from benchmarks.llm.prompts import Text

_SEED = 20_261_130
_SHORTEST, _LONGEST = 32, 256  # tokens of prompts
_NEW = 64  # tokens asked for
_SHARED = 512  # tokens of the prefix that scenario C's requests share
_OWN = (16, 64)  # and of what each has of its own
_MIXED_PROMPTS = (16, 512)
_MIXED_NEW = (16, 128)
_WARM = 3  # requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """How many ask at once, and what."""

    name: str
    what: str
    requests: int
    concurrency: int
    make: Callable[[Text, np.random.Generator, int], tuple[Asked, ...]]

    def load(self, text: Text, round_: int) -> Load:
        """The same for every server; another one each round, so that nothing of it is cached."""
        draw = np.random.default_rng([_SEED, round_, *self.name.encode()])
        return Load(asked=self.make(text, draw, self.requests), concurrency=self.concurrency)


def warming(text: Text) -> Load:
    """A few calls before the first that counts."""
    draw = np.random.default_rng([_SEED, 77])
    return Load(asked=_plain(text, draw, _WARM), concurrency=1)


def arriving(text: Text, requests: int, per_second: float) -> Load:
    """Scenario D: mixed requests that come when they come, not when the one before has ended."""
    draw = np.random.default_rng([_SEED, 78])
    asked = _mixed(text, draw, requests)
    dues = np.cumsum(draw.exponential(1.0 / per_second, requests))
    timed = (
        Asked(prompt=a.prompt, prompt_tokens=a.prompt_tokens, max_tokens=a.max_tokens, due=due)
        for a, due in zip(asked, map(float, dues), strict=True)
    )
    return Load(asked=tuple(timed), concurrency=0)


def _plain(text: Text, draw: np.random.Generator, requests: int) -> tuple[Asked, ...]:
    lengths = draw.integers(_SHORTEST, _LONGEST + 1, requests)
    return tuple(_one(text, draw, int(length)) for length in lengths)


def _shared(text: Text, draw: np.random.Generator, requests: int) -> tuple[Asked, ...]:
    prefix, count = text.cut(draw, _SHARED)
    asked = []
    for length in draw.integers(_OWN[0], _OWN[1] + 1, requests):
        own, own_count = text.cut(draw, int(length))
        asked.append(
            Asked(prompt=f"{prefix}\n{own}", prompt_tokens=count + 1 + own_count, max_tokens=_NEW)
        )
    return tuple(asked)


def _mixed(text: Text, draw: np.random.Generator, requests: int) -> tuple[Asked, ...]:
    prompts = _log_uniform(draw, _MIXED_PROMPTS, requests)
    answers = _log_uniform(draw, _MIXED_NEW, requests)
    return tuple(
        _one(text, draw, prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)
    )


def _log_uniform(draw: np.random.Generator, bounds: tuple[int, int], count: int) -> list[int]:
    low, high = np.log(bounds)
    return [int(value) for value in np.exp(draw.uniform(low, high, count)).round()]


def _one(text: Text, draw: np.random.Generator, length: int, new: int = _NEW) -> Asked:
    prompt, count = text.cut(draw, length)
    return Asked(prompt=prompt, prompt_tokens=count, max_tokens=new)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="A", what="8 at once", requests=32, concurrency=8, make=_plain),
        Scenario(name="A16", what="16 at once", requests=48, concurrency=16, make=_plain),
        Scenario(name="B", what="one at a time", requests=8, concurrency=1, make=_plain),
        Scenario(
            name="C", what="512 tokens shared, 8 at once", requests=16, concurrency=8, make=_shared
        ),
        # How much of it a server can do decides how much of it comes in the open loop.
        Scenario(name="D", what="mixed lengths", requests=48, concurrency=16, make=_mixed),
    )
}
SHARE = 0.7  # of that capacity, in scenario D
