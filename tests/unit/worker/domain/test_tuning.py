"""The search for threads, instances and batch size, on machines that are made up."""

from collections.abc import Callable

import pytest

from services.worker.domain.assignment import RunSettings, Tuning
from services.worker.domain.tuning import Layout, Measured, Room, Search

FREE = RunSettings()
Machine = Callable[[Layout], Measured | None]


def machine(
    *,
    per_run: float = 0.0,
    per_row: float = 0.001,
    threads_help: float = 0.0,
    cpus: int = 4,
) -> Machine:
    """Runs cost so many seconds, and so many for each row; `threads_help`: what share of them more threads divide."""

    def measure(layout: Layout) -> Measured:
        seconds = per_run + per_row * layout.max_batch_size
        seconds *= 1 - threads_help + threads_help / layout.intra_op_threads
        at_once = min(layout.instances, max(1, cpus // layout.intra_op_threads))
        return Measured(at_once * layout.max_batch_size / seconds, seconds)

    return measure


def searched(measure: Machine, room: Room, most: int = 100) -> tuple[Tuning | None, list[Layout]]:
    """What a search ends with, and what it measured."""
    search = Search(room)
    seen: list[Layout] = []
    while len(seen) < most and (layout := search.next()):
        seen.append(layout)
        search.note(layout, measure(layout))
    return search.best(), seen


def room(cpus: int = 4, most_rows: int = 64, settings: RunSettings = FREE) -> Room:
    return Room(cpus=cpus, most_rows=most_rows, settings=settings)


def layout_of(tuning: Tuning | None) -> Layout:
    assert tuning is not None
    return Layout(tuning.intra_op_threads, tuning.instances, tuning.max_batch_size)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        pytest.param(
            machine(per_run=0.001, per_row=0.000001), Layout(1, 4, 64), id="cheap rows: big batches"
        ),
        pytest.param(machine(), Layout(1, 4, 1), id="batches gain nothing: single rows"),
        pytest.param(
            machine(threads_help=1.0, cpus=1), Layout(4, 1, 1), id="threads help, instances don't"
        ),
        pytest.param(machine(cpus=1), Layout(1, 1, 1), id="nothing helps: one thread"),
        pytest.param(
            machine(per_run=0.04, per_row=0.02),
            Layout(1, 4, 8),
            id="no run beyond 4 × a single row",
        ),
    ],
)
def test_the_fastest_layout_is_found(measure: Machine, expected: Layout) -> None:
    """Of nearly equal ones that with the fewest threads and the shortest runs."""
    tuning, seen = searched(measure, room())
    assert layout_of(tuning) == expected
    assert len(seen) < 25
    assert len(seen) - len(set(seen)) <= 3
    baseline = measure(Layout(1, 1, 1))
    assert tuning is not None
    assert baseline is not None
    assert tuning.baseline_rows_per_second == baseline.rows_per_second
    assert tuning.machine_cpus == 4


def test_no_layout_uses_more_cpus_than_there_are() -> None:
    """Whatever their number."""
    for cpus in (1, 2, 3, 6, 64):
        _, seen = searched(machine(cpus=cpus), room(cpus))
        assert max(layout.threads for layout in seen) == cpus
        assert len(seen) < 60


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        pytest.param(RunSettings(max_batch_size=8), Layout(0, 0, 8), id="batch"),
        pytest.param(RunSettings(instances=3), Layout(0, 3, 0), id="instances"),
        pytest.param(RunSettings(intra_op_threads=8), Layout(8, 0, 0), id="threads beyond CPUs"),
        pytest.param(
            RunSettings(intra_op_threads=2, instances=2, max_batch_size=16),
            Layout(2, 2, 16),
            id="all",
        ),
    ],
)
def test_settings_that_say_something_are_kept(settings: RunSettings, allowed: Layout) -> None:
    """Only the baseline is measured besides."""
    tuning, seen = searched(machine(per_run=0.001), room(settings=settings))
    for layout in (layout_of(tuning), *seen[1:]):
        assert allowed.intra_op_threads in (0, layout.intra_op_threads)
        assert allowed.instances in (0, layout.instances)
        assert allowed.max_batch_size in (0, layout.max_batch_size)
    assert seen[0] == Layout(1, 1, 1)


def test_a_batch_that_settings_ask_for_may_last() -> None:
    """However long runs of a fixed size are, threads and instances are found for them."""
    fixed = RunSettings(max_batch_size=32)
    slow = machine(per_run=0.0001, per_row=0.01)  # 0.3 s a run
    found, _ = searched(slow, room(settings=fixed))
    assert layout_of(found) == Layout(1, 4, 32)


def test_what_looked_slow_once_is_measured_again() -> None:
    """Other work on the machine slows one measurement, not the layout."""
    quiet, seen = machine(per_run=0.001, per_row=0.000001, cpus=1), set()

    def measure(layout: Layout) -> Measured | None:
        found = quiet(layout)
        assert found is not None
        slowed = layout.max_batch_size == 64 and layout not in seen
        seen.add(layout)
        return Measured(found.rows_per_second * (0.8 if slowed else 1), found.run_seconds)

    tuning, _ = searched(measure, room())
    assert layout_of(tuning) == Layout(1, 1, 64)


def test_without_batches_only_threads_and_instances_are_tried() -> None:
    """A version whose rows depend on each other stays with single rows."""
    tuning, seen = searched(machine(per_run=0.001), room(most_rows=1))
    assert {layout.max_batch_size for layout in seen} == {1}
    assert layout_of(tuning) == Layout(1, 4, 1)


def test_what_cannot_be_run_is_not_chosen() -> None:
    """More instances than memory: those that fit."""
    fits = machine(per_run=0.001)
    tuning, _ = searched(lambda layout: fits(layout) if layout.instances == 1 else None, room())
    assert layout_of(tuning).instances == 1


def test_a_search_may_end_at_any_time() -> None:
    """The best so far counts; before anything is measured there is none."""
    measure = machine(per_run=0.001, per_row=0.000001)
    assert searched(measure, room(), most=0)[0] is None
    assert layout_of(searched(measure, room(), most=1)[0]) == Layout(1, 1, 1)
    assert layout_of(searched(measure, room(), most=4)[0]) == Layout(1, 1, 8)
    fixed = RunSettings(instances=2)
    assert searched(measure, room(settings=fixed), most=1)[0] is None
    assert searched(lambda _: None, room())[0] is None
