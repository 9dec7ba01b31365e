"""What is learned from runs that ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.run_cost import CellCost, RowCost


def test_a_row_costs_what_full_batches_take() -> None:
    """A run that could have been larger says only that a row costs no more."""
    cost = RowCost()
    for _ in range(4):
        cost.note(1, 0.010, full=False)
    assert cost.seconds == pytest.approx(0.010)
    for _ in range(50):
        cost.note(32, 0.032, full=True)
    assert cost.seconds == pytest.approx(0.001, rel=0.01)
    cost.note(1, 0.010, full=False)
    assert cost.seconds == pytest.approx(0.001, rel=0.01)


def test_the_first_short_runs_are_not_believed() -> None:
    """A lone call on a busy machine may take a hundred times its time: nobody is refused for it. A long run is one."""
    cost = RowCost()
    for seconds in (0.05, 0.0005, 0.04):
        cost.note(1, seconds, full=True)
        assert not cost.seconds
    cost.note(1, 0.03, full=True)
    assert cost.seconds == pytest.approx(0.0005)
    slow = RowCost()
    slow.note(4, 0.4, full=False)
    assert slow.seconds == pytest.approx(0.1)


def test_a_moment_of_standstill_does_not_make_a_model_slow() -> None:
    """One run that took a thousand times as long adds a fifth; a model that is slow now is learned."""
    cost = RowCost()
    for _ in range(4):
        cost.note(32, 0.032, full=True)
    cost.note(32, 32.0, full=True)
    assert cost.seconds == pytest.approx(0.0012)
    for _ in range(30):
        cost.note(32, 0.32, full=True)
    assert cost.seconds == pytest.approx(0.01, rel=0.1)


@given(st.floats(1e-5, 1e-2), st.floats(1e-7, 1e-3))
def test_a_line_is_found(per_run: float, per_cell: float) -> None:
    """Runs whose time is a line over their cells tell how many cells a run costs."""
    cost = CellCost()
    for number in range(40):
        cells = 8 + 37 * number % 500
        cost.note(cells, per_run + per_cell * cells)
    found = cost.cells_per_run()
    assert found is not None
    assert found == pytest.approx(per_run / per_cell, rel=0.01, abs=0.5)


def test_nothing_is_claimed_of_too_few_runs_or_of_one_size() -> None:
    """A line needs points that differ."""
    cost = CellCost()
    assert cost.cells_per_run() is None
    for _ in range(100):
        cost.note(64, 0.01)
    assert cost.cells_per_run() is None


def test_no_line_where_more_cells_cost_nothing() -> None:
    """What cannot be seen is not believed."""
    cost = CellCost()
    for number in range(20):
        cost.note(10 + number, 1.0 - 0.01 * number)
    assert cost.cells_per_run() is None
