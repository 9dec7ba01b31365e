"""Which token a random number stands for, by temperature, min-p, top-k and top-p.

Temperature comes first, then min-p and top-k, then top-p of what these leave. The same logits, settings and number
give the same token, whatever else is computed beside them. Nothing is cut off that the settings don't cut off.
"""

import math

import numpy as np

from services.worker.llm.domain.candidates import Candidates
from services.worker.llm.domain.running_sums import RunningSums
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.domain.step import Array

# What all tokens out of reach weigh together at most, compared with the likeliest: so that a draw seldom, a nucleus
# almost never depends on them.
_REST = 1 / 25
_NUCLEUS_REST = 1 / 1000


def draw(candidates: Candidates, settings: SamplingSettings, random: float) -> int:
    """A token's id; `random` is 0 to below 1."""
    if settings.top_k > 0 or settings.min_p > 0:
        return _draw_of_few(candidates, settings, random)
    if settings.top_p == 1:
        return _Row(candidates, settings.temperature, _REST).draw(random)
    # A nucleus that leaves out less than that may have tokens out of reach.
    rest = _NUCLEUS_REST if 1 - settings.top_p > _NUCLEUS_REST else 0.0
    return _Row(candidates, settings.temperature, rest).draw_of_nucleus(settings.top_p, random)


def _draw_of_few(candidates: Candidates, settings: SamplingSettings, random: float) -> int:
    floor = -math.inf
    if settings.min_p > 0:
        floor = float(candidates.highest) + settings.temperature * math.log(settings.min_p)
    if settings.top_k > 0:
        ids, logits = candidates.top(settings.top_k)
        kept = logits >= np.float32(floor)
        ids, logits = ids[kept], logits[kept]
    else:
        ids, logits = candidates.above(floor)
    weights = _weights(logits, candidates.highest, settings.temperature)
    if settings.top_p < 1:
        falling = np.sort(weights)[::-1]
        last = int(_running(falling).searchsorted(settings.top_p * float(weights.sum())))
        weights = np.where(weights >= falling[min(last, len(falling) - 1)], weights, 0)
    return int(ids[_drawn(weights, random)])


class _Row:
    """All tokens: those within reach of the likeliest one, and the rest, which weighs little and seldom matters."""

    def __init__(self, candidates: Candidates, temperature: float, most_rest: float) -> None:
        """`most_rest`: what the rest may weigh together, compared with the likeliest; 0: nothing is out of reach."""
        self._candidates = candidates
        self._temperature = temperature
        self._most_rest = most_rest
        self._floor = -math.inf
        if most_rest:
            reach = math.log(candidates.size / most_rest)
            self._floor = float(candidates.highest) - reach * temperature
        self._ids, logits = candidates.above(self._floor)
        self._weights = _weights(logits, candidates.highest, temperature)
        self._known = float(self._weights.sum())

    def _rest(self) -> Array:
        """Weights by id; those within reach are 0."""
        candidates = self._candidates
        weights = _weights(candidates.logits, candidates.highest, self._temperature)
        weights[self._ids] = 0
        return weights

    def draw(self, random: float) -> int:
        """Any token: those within reach come first, then the rest."""
        sums = RunningSums(self._weights)
        place, end = sums.find(random * sums.total)
        if random * (sums.total + self._most_rest) < end:  # the rest could not move it further
            return int(self._ids[place])
        rest = RunningSums(self._rest())
        mass = random * (sums.total + rest.total)
        if rest.total == 0 or mass < sums.total:
            return int(self._ids[sums.find(mass)[0]])
        return rest.find(mass - sums.total)[0]

    def draw_of_nucleus(self, share: float, random: float) -> int:
        """One of the likeliest that together have this share."""
        # All that weigh less than this together weigh less than what a nucleus leaves out.
        likely = np.flatnonzero(self._weights >= (1 - share) * self._known / self._candidates.size)
        weights = self._weights[likely]
        falling = np.sort(weights)[::-1]
        running = _running(falling)
        last = int(running.searchsorted(share * self._known))
        if last != running.searchsorted(share * (self._known + self._most_rest)):
            total = self._known + float(self._rest().sum())
            last = int(running.searchsorted(share * total))
        nucleus = np.where(weights >= falling[min(last, len(falling) - 1)], weights, 0)
        return int(self._ids[likely[_drawn(nucleus, random)]])


def _weights(logits: Array, highest: np.float32, temperature: float) -> Array:
    """Probabilities relative to the likeliest's, which has 1."""
    scaled = (logits - highest) * np.float32(1 / temperature)
    weights: Array = np.exp(scaled, out=scaled)
    return weights


def _running(weights: Array) -> Array:
    """Their running sums."""
    return weights.astype(np.float64).cumsum()


def _drawn(weights: Array, random: float) -> int:
    """Where the random number falls in weights."""
    sums = RunningSums(weights)
    return sums.find(random * sums.total)[0]
