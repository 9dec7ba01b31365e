"""Which requests of unlike lengths share a run: as many as pay for the padding that they cause."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.worker.domain.ragged import Lengths, Padding
from services.worker.domain.waiting import Waiting

_LOOK = 256  # requests that are looked at, the first to be computed first
_UNKNOWN_WASTE = 0.25  # of a request's own cells that padding may add before costs are known
_ENOUGH = 24.0  # a run of so many times the cells that it costs at all gains nothing by more,
_LEAST = 8.0  # unless that is less than so many rows like the first
_WORTH = 4.0  # the same, for a run that leaves others to another instance


@dataclass(frozen=True, slots=True)
class Choice:
    """Bounds of one batch."""

    max_rows: int
    instances: int  # that could compute now; what waits is shared out between them
    cells_per_run: float | None  # cells that cost as much as another run would; None: unknown


def choose(
    first: Waiting, others: Sequence[Waiting], padding: Padding, choice: Choice
) -> list[Waiting]:
    """The first, and of the others those nearest to it in length that are cheaper in its run than in another.

    Args:
        first: is always in it.
        others: of the same group, in the order in which they are to be computed.
        padding: the version's.
        choice: bounds.
    """
    return _Company(first, padding, choice).gather(others[:_LOOK])


class _Company:
    """A batch that grows from its first request to lengths around it."""

    def __init__(self, first: Waiting, padding: Padding, choice: Choice) -> None:
        self._padding = padding
        self._choice = choice
        self._batch = [first]
        self._rows = first.rows
        self._longest = first.terms.lengths
        self._area = self._own = first.terms.area
        self._share = 0.0  # cells of all that waits for each instance

    def gather(self, others: Sequence[Waiting]) -> list[Waiting]:
        own = self._area
        waiting = sum(r.terms.area * r.rows for r in others) + own * self._rows
        self._share = waiting / self._choice.instances
        # The nearest last, and among equals those that are to be computed first.
        longer = sorted((r for r in others if r.terms.area > own), key=_area)
        longer.reverse()
        shorter = sorted((r for r in others if r.terms.area <= own), key=_shortness)
        shorter.reverse()
        while (shorter or longer) and self._rows < self._choice.max_rows and not self._is_enough():
            self._grow(shorter, longer)
        return self._batch

    def _grow(self, shorter: list[Waiting], longer: list[Waiting]) -> None:
        """Take the nearest on the side where it costs less, or give up that side."""
        side = shorter
        if not shorter or (longer and self._added(longer[-1]) < self._added(shorter[-1])):
            side = longer
        nearest = side[-1]
        if self._rows + nearest.rows > self._choice.max_rows:
            side.pop()
        elif self._added(nearest) > self._allowed(nearest):
            side.clear()
        else:
            side.pop()
            self._batch.append(nearest)
            self._rows += nearest.rows
            self._longest = self._with(nearest)
            self._area = self._padding.area(self._longest)

    def _with(self, request: Waiting) -> Lengths:
        return tuple(map(max, self._longest, request.terms.lengths))

    def _added(self, request: Waiting) -> int:
        """Cells of padding that it would cause: its own and that of those who are there."""
        area = self._padding.area(self._with(request))
        return (area - self._area) * self._rows + (area - request.terms.area) * request.rows

    def _allowed(self, request: Waiting) -> float:
        if self._choice.cells_per_run is not None:
            return self._choice.cells_per_run
        return _UNKNOWN_WASTE * request.terms.area * request.rows

    def _is_enough(self) -> bool:
        per_run = self._choice.cells_per_run
        if per_run is None:
            return False
        cells = self._area * self._rows
        if cells >= max(_WORTH * per_run, self._own) and cells >= self._share:
            return True
        return cells >= max(_ENOUGH * per_run, _LEAST * self._own)


def _area(request: Waiting) -> int:
    return request.terms.area


def _shortness(request: Waiting) -> int:
    return -request.terms.area
