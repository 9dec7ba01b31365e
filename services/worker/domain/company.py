"""Which requests of unlike lengths share a run.

A run costs something at all, and something for each cell, padding included. What waits is parted, by length, so that
all of it together costs least: more runs pad less, fewer runs save what each costs at all. Then the part that has the
first request is taken, so nobody starves however unusual their length is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.worker.domain.waiting import Waiting

_LOOK = 96  # requests that are looked at, the first to be computed first
# Of the first request's cells: what a run is taken to cost at all before it is known.
_UNKNOWN = 0.25
_ENOUGH = 24.0  # a run of so many times the cells that it costs at all gains nothing by more,
_LEAST = 8.0  # unless that is less than so many rows like the first
_WORTH = 4.0  # the same, for a run that leaves others to another instance


@dataclass(frozen=True, slots=True)
class Choice:
    """Bounds of one batch."""

    max_rows: int
    instances: int  # that could compute now; what waits is shared out between them
    cells_per_run: float | None  # cells that cost as much as a run costs at all; None: unknown


def choose(first: Waiting, others: Sequence[Waiting], choice: Choice) -> list[Waiting]:
    """The first request and those that share its run.

    Args:
        first: is always in it.
        others: of the same group, in the order in which they are to be computed.
        choice: bounds.
    """
    if not others:
        return [first]
    waiting = sorted((first, *others[:_LOOK]), key=_area)
    per_run = choice.cells_per_run
    if per_run is None:
        per_run = _UNKNOWN * first.terms.area
    cuts = _cuts(waiting, per_run, (choice.max_rows, _most_cells(first, waiting, per_run, choice)))
    place, end = waiting.index(first), len(waiting)
    while cuts[end] > place:
        end = cuts[end]
    part = waiting[cuts[end] : end]
    part.remove(first)
    return [first, *part]


def _cuts(waiting: Sequence[Waiting], per_run: float, most: tuple[int, float]) -> list[int]:
    """Where the last part of the first so many requests begins, if they are parted at least cost."""
    areas = [request.terms.area for request in waiting]
    sizes = [request.terms.rows for request in waiting]
    costs, cuts = [0.0], [0]
    for end in range(1, len(waiting) + 1):
        longest, rows = areas[end - 1], 0
        least, cut = float("inf"), end - 1
        for start in range(end - 1, -1, -1):
            rows += sizes[start]
            # A part that pads one request by more than a run costs is better two parts.
            if start < end - 1 and (
                rows > most[0] or rows * longest > most[1] or longest - areas[start] > per_run
            ):
                break
            cost = costs[start] + per_run + rows * longest
            if cost <= least:
                least, cut = cost, start
        costs.append(least)
        cuts.append(cut)
    return cuts


def _most_cells(
    first: Waiting, waiting: Sequence[Waiting], per_run: float, choice: Choice
) -> float:
    """Cells of a run that is large enough."""
    enough = max(_ENOUGH * per_run, _LEAST * first.terms.area)
    if choice.instances == 1:
        return enough
    share = sum(r.terms.area * r.terms.rows for r in waiting) / choice.instances
    return min(enough, max(_WORTH * per_run, share))


def _area(request: Waiting) -> int:
    return request.terms.area
