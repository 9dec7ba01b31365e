"""Which token a random number stands for, by temperature, min-p, top-k and top-p.

Temperature comes first, then min-p and top-k, then top-p of what these leave. The same logits, settings and number
give the same token, whatever else is computed beside them.
"""

import math

import numpy as np

from services.worker.llm.domain.candidates import FIRST, LINES, Candidates
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.domain.step import Array


def draw(candidates: Candidates, settings: SamplingSettings, random: float) -> int:
    """A token's id; `random` is 0 to below 1."""
    if settings.top_k > 0 or settings.min_p > 0:
        return _draw_of_few(candidates, settings, random)
    row = _Row(candidates, settings.temperature)
    if settings.top_p < 1:
        return row.draw_of_nucleus(settings.top_p, random)
    return row.draw(random)


def _draw_of_few(candidates: Candidates, settings: SamplingSettings, random: float) -> int:
    floor = -math.inf
    if settings.min_p > 0:
        floor = float(candidates.highest) + settings.temperature * math.log(settings.min_p)
    if settings.top_k > 0:
        ids, logits = candidates.top(settings.top_k)
        kept = logits >= min(floor, candidates.highest)
        ids, logits = ids[kept], logits[kept]
    else:
        ids, logits = candidates.above(min(floor, float(candidates.highest)))
    weights = _weights(logits, candidates.highest, settings.temperature)
    if settings.top_p < 1:
        least = _least(weights, settings.top_p * float(weights.sum()))
        weights = np.where(weights >= least, weights, 0)
    return int(ids[_draw_place(weights, random)])


class _Row:
    """All tokens of a row. Most of the weight is in a few columns, and most often that is enough to know."""

    def __init__(self, candidates: Candidates, temperature: float) -> None:
        self._candidates = candidates
        self._temperature = temperature
        self._order = candidates.order()
        first = self._order[:FIRST]
        self._weights = self._weighed(candidates.logits(first))
        # Elsewhere no token has more weight than its column's largest.
        bounds = self._weighed(candidates.largest[self._order[FIRST:]])
        self._ceiling = float(bounds.max()) if len(bounds) else 0.0
        self._rest = LINES * float(bounds.sum())

    def _weighed(self, logits: Array) -> Array:
        return _weights(logits, self._candidates.highest, self._temperature)

    def draw(self, random: float) -> int:
        """Any token."""
        running = _running(self._weights)
        known = float(running[-1])
        most = random * (known + self._rest)
        place = _place(running, random * known)
        if most >= known or place != _place(running, most):
            return self._draw_of_all(random)
        return self._first_id(place)

    def _draw_of_all(self, random: float) -> int:
        """In the same order of columns: the column first, then the token in it."""
        weights = self._weighed(self._candidates.table)
        running = _running(weights.sum(axis=0)[self._order])
        place = _place(running, random * float(running[-1]))
        within = _running(weights[:, self._order[place]])
        before = float(running[place - 1]) if place else 0.0
        line = _place(within, random * float(running[-1]) - before)
        return int(self._order[place]) + line * len(self._order)

    def draw_of_nucleus(self, share: float, random: float) -> int:
        """One of the likeliest that together have this share."""
        known = float(self._weights.sum())
        likely = self._weights[self._weights >= self._ceiling]
        least = _least(likely, share * known)
        if least is None or least != _least(likely, share * (known + self._rest)):
            return self._draw_of_whole_nucleus(share, random)
        nucleus = np.flatnonzero(self._weights >= least)
        place = _draw_place(self._weights[nucleus], random)
        return self._first_id(int(nucleus[place]))

    def _draw_of_whole_nucleus(self, share: float, random: float) -> int:
        weights = self._weighed(self._candidates.table).ravel()
        total = float(weights.sum())
        # All that weigh less than this don't together weigh what a nucleus leaves out.
        likely = np.flatnonzero(weights >= (1 - share) * total / len(weights))
        least = _least(weights[likely], share * total)
        nucleus = likely if least is None else likely[weights[likely] >= least]
        return int(nucleus[_draw_place(weights[nucleus], random)])

    def _first_id(self, place: int) -> int:
        """Of a token of the columns that are looked at first."""
        column, line = divmod(place, LINES)
        return int(self._order[column]) + line * len(self._order)


def _weights(logits: Array, highest: np.float32, temperature: float) -> Array:
    """Probabilities relative to the likeliest's, which has 1."""
    scaled = (logits - highest) * np.float32(1 / temperature)
    weights: Array = np.exp(scaled, out=scaled)
    return weights


def _running(weights: Array) -> Array:
    """Their running sums."""
    return weights.astype(np.float64).cumsum()


def _place(running: Array, mass: float) -> int:
    """Where this mass falls in running sums; never on a weight of 0."""
    place = int(running.searchsorted(mass, side="right"))
    return min(place, int(running.searchsorted(running[-1], side="left")))


def _draw_place(weights: Array, random: float) -> int:
    """Where the random number falls in weights."""
    running = _running(weights)
    return _place(running, random * float(running[-1]))


def _least(weights: Array, mass: float) -> float | None:
    """The least weight in the smallest set of the largest that has this mass; None: they don't have it."""
    falling = np.sort(weights)[::-1]
    running = _running(falling)
    if not len(running) or running[-1] < mass:
        return None
    return float(falling[running.searchsorted(mass, side="left")])
