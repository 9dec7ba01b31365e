"""When a batch is due: windows, preferred sizes, and who is expected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.batch import Taken
from tests.unit.worker.domain.queue_requests import admitted, queue, request


def test_a_lone_request_never_waits() -> None:
    """Nothing is computed and nobody was there: a window would only be its latency."""
    q = queue(max_delay=5.0)
    admitted(q, request(at=1.0))
    assert q.due(1.0, computing=0) == 1.0


def test_a_caller_that_comes_again_and_again_never_waits() -> None:
    """One was in flight when the last batch was taken, one waits now: nobody is missing."""
    q = queue(max_delay=5.0)
    for moment in (1.0, 2.0, 3.0):
        admitted(q, request(at=moment))
        assert q.due(moment, computing=0) == moment
        q.note_run(q.take(moment), 0.5, moment + 0.5)


def test_while_others_are_computed_the_window_is_open() -> None:
    """They are likely to come again; it counts from the first that waits."""
    q = queue(max_delay=5.0)
    admitted(q, request(at=1.0), request(at=2.0))
    assert q.due(2.5, computing=1) == 6.0


def test_those_who_were_just_answered_are_waited_for() -> None:
    """Three were in flight, one is back: the window stays open for the others, until it is full or has passed."""
    q = queue(max_delay=5.0)
    admitted(q, *(request(at=1.0) for _ in range(3)))
    q.note_run(q.take(1.0), 0.5, 2.0)
    admitted(q, request(at=3.0))
    assert q.due(3.0, computing=0) == 7.0  # a window after they were answered
    admitted(q, request(at=3.1), request(at=3.2))
    assert q.due(3.2, computing=0) == 3.2  # all are back
    assert len(q.take(3.2).batch) == 3


def test_who_was_answered_long_ago_is_not_waited_for() -> None:
    """After a window of silence a single caller is alone again."""
    q = queue(max_delay=5.0)
    admitted(q, *(request(at=1.0) for _ in range(3)))
    q.note_run(q.take(1.0), 0.5, 2.0)
    admitted(q, request(at=8.0))
    assert q.due(8.0, computing=0) == 8.0


@pytest.mark.parametrize(
    ("rows", "due", "taken"),
    [
        pytest.param(2, 9.0, 2, id="fewer than preferred wait for the window"),
        pytest.param(3, 0.0, 3, id="a preferred size goes at once"),
        pytest.param(5, 0.0, 3, id="what is above a preferred size waits for the next"),
        pytest.param(6, 0.0, 6, id="the largest preferred size that is there"),
        pytest.param(9, 0.0, 8, id="a full batch"),
    ],
)
def test_preferred_sizes(rows: int, due: float, taken: int) -> None:
    """A batch of a preferred size does not wait for the window, and has that size."""
    q = queue(max_rows=8, max_delay=9.0, preferred=(3, 6))
    admitted(q, *(request() for _ in range(rows)))
    assert q.due(0.0, computing=1) == due
    assert q.take(due).rows == taken


def test_preferred_sizes_above_a_batch_mean_nothing() -> None:
    """A worker's own bound may be lower than what a version prefers."""
    q = queue(max_rows=2, preferred=(3,))
    admitted(q, request(), request())
    assert q.take(0.0).rows == 2


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.floats(0, 2), st.integers(0, 3))
def test_the_window_is_measured_from_the_first(
    arrivals: list[float], delay: float, computing: int
) -> None:
    """Whatever comes later, the first waits no longer than the window."""
    q = queue(max_rows=100, max_delay=delay)
    moments = sorted(arrivals)
    for moment in moments:
        admitted(q, request(at=moment))
        due = q.due(moment, computing)
        assert due is not None
        assert moments[0] <= due <= max(moment, moments[0] + delay)


@given(st.integers(1, 6), st.integers(1, 3))
def test_nothing_idles_while_rows_wait(requests: int, instances: int) -> None:
    """Without a window everything is due at once, whatever is being computed, until nothing waits."""
    q = queue(instances=instances)
    admitted(q, *(request(at=1.0, group=None) for _ in range(requests)))
    for computing in range(requests):
        assert q.due(1.0, computing) == 1.0
        assert len(q.take(1.0, computing).batch) == 1
    assert q.due(1.0, requests) is None


def test_an_empty_batch_teaches_nothing_wrong() -> None:
    """A run without rows is one row's time."""
    q = queue()
    q.note_run(Taken([], []), 0.5, 1.0)
    assert q.wait(0, "") == 0.0
