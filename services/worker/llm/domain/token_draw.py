"""Which token a random number stands for, by temperature, top-k, top-p and min-p."""

import math

import numpy as np

from services.worker.llm.domain.candidates import LINES, Candidates
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.domain.step import Array

# Columns of candidates that are looked at, until it is certain what looking at all would give.
_FIRST_COLUMNS = 32
_MORE = 8


def draw(candidates: Candidates, settings: SamplingSettings, random: float) -> int:
    """A token's id. The same logits, settings and number (0 to below 1) give the same token, whatever else there is.

    Temperature comes first, then min-p and top-k, then top-p of what these leave.
    """
    if settings.top_k > 0:
        return _draw_closed(*candidates.top(settings.top_k), settings, random)
    if settings.min_p > 0:
        floor = candidates.highest + settings.temperature * math.log(settings.min_p)
        columns = int(np.count_nonzero(candidates.bounds() >= floor))
        return _draw_closed(*candidates.of(max(columns, 1)), settings, random)
    return _draw_open(candidates, settings, random)


def _draw_closed(ids: Array, logits: Array, settings: SamplingSettings, random: float) -> int:
    """Of these; no others have a part in it."""
    weights = _weights(logits, float(logits.max()), settings.temperature)
    weights[weights < settings.min_p] = 0
    if settings.top_p < 1:
        least = _nucleus(weights, settings.top_p)
        assert least is not None, "nothing is left open"
        weights[weights < least] = 0
    place = _place(np.cumsum(weights), random)
    assert place is not None, "the likeliest token has weight 1"
    return int(ids[place])


def _draw_open(candidates: Candidates, settings: SamplingSettings, random: float) -> int:
    """Of all. Beyond the columns looked at, what is left has between no weight and that of its bounds."""
    columns = min(_FIRST_COLUMNS, candidates.columns)
    bounds = _weights(candidates.bounds(), candidates.highest, settings.temperature)
    while True:
        ids, logits = candidates.of(columns)
        weights = _weights(logits, candidates.highest, settings.temperature)
        rest = float(bounds[columns:].sum()) * LINES
        highest_left = float(bounds[columns]) if columns < candidates.columns else 0.0
        if settings.top_p < 1:
            place = _place_in_nucleus(weights, settings.top_p, random, (rest, highest_left))
        else:
            place = _place(np.cumsum(weights), random, rest)
        if place is not None:
            return int(ids[place])
        assert columns < candidates.columns, "with all of them it is certain"
        columns = min(columns * _MORE, candidates.columns)


def _weights(logits: Array, highest: float, temperature: float) -> Array:
    """Probabilities relative to the likeliest's, which has 1."""
    scaled = (logits - np.float32(highest)).astype(np.float64)
    scaled /= temperature
    weights: Array = np.exp(scaled, out=scaled)
    return weights


def _place(sums: Array, random: float, rest: float = 0.0) -> int | None:
    """Where the random number falls in running sums; None: it depends on how much of `rest` there is."""
    total = float(sums[-1])
    place = int(np.searchsorted(sums, random * total, side="right"))
    if rest and place != int(np.searchsorted(sums, random * (total + rest), side="right")):
        return None
    return min(place, len(sums) - 1) if not rest else place


def _nucleus(weights: Array, share: float, rest: float = 0.0) -> float | None:
    """The least weight in the smallest set of the likeliest that has this share; None: that depends on `rest`."""
    falling = np.sort(weights)[::-1]
    sums = np.cumsum(falling)
    total = float(sums[-1])
    last = int(np.searchsorted(sums, share * total, side="left"))
    if rest and last != int(np.searchsorted(sums, share * (total + rest), side="left")):
        return None
    return float(falling[min(last, len(falling) - 1)])


def _place_in_nucleus(
    weights: Array, share: float, random: float, left: tuple[float, float]
) -> int | None:
    """As `_place`, among the nucleus; `left` are the sum and the highest that weights elsewhere may have."""
    rest, highest = left
    least = _nucleus(weights, share, rest)
    if least is None or least <= highest:
        return None
    return _place(np.cumsum(np.where(weights >= least, weights, 0)), random)
