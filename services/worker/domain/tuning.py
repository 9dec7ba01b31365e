"""Finds the threads, instances and batch size that compute the most rows, in few measurements. It has no clock.

First batches grow with one instance of one thread, until they lose. Then the best is tried on every way to share out
the CPUs, the fullest first. Then the batches beside it on the best of those. The best few are measured twice: a machine
that does other work too makes layouts look slower than they are, never faster.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from services.worker.domain.assignment import RunSettings, Tuning

_LOSS = 0.7  # of the best: two batches in a row below it, and larger ones are not tried
_TWICE = 3  # layouts that are measured again
_GOOD_ENOUGH = 0.9  # of the best: then fewer threads, and shorter runs, are worth more
_LONGEST_RUN = 0.05  # seconds that a run may always last
_TIMES_BASELINE = 4  # and so many times a single row's


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to run a version."""

    intra_op_threads: int
    instances: int
    max_batch_size: int

    @property
    def threads(self) -> int:
        """Threads that compute at once."""
        return self.intra_op_threads * self.instances


@dataclass(frozen=True, slots=True)
class Measured:
    """What a layout reached."""

    rows_per_second: float
    run_seconds: float  # of one run, on average


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Within what the search is free; settings that say something are kept to."""

    cpus: int
    most_rows: int  # of a batch; 1: not batched
    settings: RunSettings


_BASELINE = Layout(1, 1, 1)


class Search:
    """Ask `next` what to measure and `note` what it reached, until there is nothing more or the time is over."""

    def __init__(self, room: Room) -> None:
        """Nothing is measured yet."""
        self._room = room
        self._found: dict[Layout, Measured | None] = {}
        self._plan = self._steps()

    def next(self) -> Layout | None:
        """What to measure now; None: enough is known."""
        return next(self._plan, None)

    def note(self, layout: Layout, measured: Measured | None) -> None:
        """Take over what a layout reached, at its best; None: it cannot be run."""
        before = self._found.get(layout)
        if before is None or measured is None or measured.rows_per_second > before.rows_per_second:
            self._found[layout] = measured

    def best(self) -> Tuning | None:
        """The layout to use as of now; None: nothing that settings allow could be measured."""
        chosen = self._chosen()
        baseline = self._found.get(_BASELINE)
        if chosen is None or baseline is None:
            return None
        layout, measured = chosen
        return Tuning(
            intra_op_threads=layout.intra_op_threads,
            instances=layout.instances,
            max_batch_size=layout.max_batch_size,
            rows_per_second=measured.rows_per_second,
            baseline_rows_per_second=baseline.rows_per_second,
            machine_cpus=self._room.cpus,
        )

    def _chosen(self) -> tuple[Layout, Measured] | None:
        allowed = [
            (layout, measured)
            for layout, measured in self._found.items()
            if measured is not None and self._is_allowed(layout) and self._is_quick(measured)
        ]
        if not allowed:
            return None
        enough = _GOOD_ENOUGH * max(measured.rows_per_second for _, measured in allowed)
        good = [one for one in allowed if one[1].rows_per_second >= enough]
        return min(good, key=lambda one: (one[0].threads, one[1].run_seconds))

    def _is_allowed(self, layout: Layout) -> bool:
        """The baseline may be what settings rule out."""
        settings = self._room.settings
        return (
            settings.intra_op_threads in (0, layout.intra_op_threads)
            and settings.instances in (0, layout.instances)
            and layout.max_batch_size in self._batches()
        )

    def _is_quick(self, measured: Measured) -> bool:
        if self._room.settings.max_batch_size:
            return True  # how long a run lasts was decided with the size of the batch
        baseline = self._found.get(_BASELINE)
        alone = baseline.run_seconds if baseline is not None else 0.0
        return measured.run_seconds <= max(_LONGEST_RUN, _TIMES_BASELINE * alone)

    def _steps(self) -> Iterator[Layout]:
        yield _BASELINE
        settings, batches = self._room.settings, self._batches()
        narrow = Layout(settings.intra_op_threads or 1, settings.instances or 1, batches[0])
        yield from self._growing([replace(narrow, max_batch_size=size) for size in batches])
        start = self._chosen()
        size = start[0].max_batch_size if start else batches[0]
        yield from self._new(replace(layout, max_batch_size=size) for layout in self._layouts())
        end = self._chosen()
        if end is not None:
            place = batches.index(end[0].max_batch_size)
            near = batches[max(0, place - 1) : place + 2]
            yield from self._new(replace(end[0], max_batch_size=size) for size in near)
        yield from self._fastest(_TWICE)

    def _new(self, layouts: Iterable[Layout]) -> Iterator[Layout]:
        """Those that are not measured yet."""
        return (layout for layout in layouts if layout not in self._found)

    def _fastest(self, count: int) -> list[Layout]:
        rates = {
            layout: measured.rows_per_second
            for layout, measured in self._found.items()
            if measured is not None and self._is_allowed(layout) and self._is_quick(measured)
        }
        return sorted(rates, key=lambda layout: -rates[layout])[:count]

    def _growing(self, layouts: list[Layout]) -> Iterator[Layout]:
        """One after the other, until two in a row have lost, or runs last too long."""
        best, poor = 0.0, 0
        for layout in layouts:
            yield from self._new([layout])
            measured = self._found.get(layout)
            if measured is None or not self._is_quick(measured):
                return
            best = max(best, measured.rows_per_second)
            poor = poor + 1 if measured.rows_per_second < best * _LOSS else 0
            if poor == 2:
                return

    def _layouts(self) -> list[Layout]:
        """Ways to share out the CPUs, those that use the most of them first."""
        settings, cpus = self._room.settings, self._room.cpus
        threads = [settings.intra_op_threads] if settings.intra_op_threads else _doubling(cpus)
        instances = [settings.instances] if settings.instances else _doubling(cpus)
        is_fixed = settings.intra_op_threads or settings.instances
        found = [Layout(t, i, 1) for t in threads for i in instances if t * i <= cpus or is_fixed]
        return sorted(found, key=lambda layout: (-min(layout.threads, cpus), layout.threads))

    def _batches(self) -> list[int]:
        most = self._room.most_rows
        fixed = self._room.settings.max_batch_size
        return [min(fixed, most)] if fixed else _doubling(most)


def _doubling(most: int) -> list[int]:
    """1, 2, 4 … and the last."""
    sizes = [1]
    while sizes[-1] * 2 <= most:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == most else [*sizes, most]
