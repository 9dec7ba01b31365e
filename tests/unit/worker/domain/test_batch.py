"""The queue of one version, moved by hand through time."""

from collections.abc import Hashable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.errors import ResourceExhaustedError
from services.worker.domain.batch import Taken, Waiting
from tests.unit.worker.domain.queue_requests import admitted, queue, request


def test_an_empty_queue_is_never_due() -> None:
    """Nothing waits, so nobody is woken."""
    assert queue().due(0.0, 0) is None


def test_without_delay_what_waits_is_due_at_once() -> None:
    """A free session takes what is there."""
    q = queue()
    admitted(q, request(at=7.0))
    assert q.due(7.5, 1) == 7.5


def test_the_window_opens_with_the_first_and_its_deadline_is_fixed() -> None:
    """Later arrivals do not push the deadline."""
    q = queue(max_delay=0.5)
    admitted(q, request(at=1.0), request(at=1.4))
    assert q.due(1.0, 1) == 1.5


def test_a_full_batch_does_not_wait_for_its_window() -> None:
    """Enough rows of the first request's group end the window."""
    q = queue(max_rows=3, max_delay=9.0)
    admitted(q, request(2, at=1.0), request(5, at=1.1, group="other"))
    assert q.due(1.0, 1) == 10.0
    admitted(q, request(1, at=1.2))
    assert q.due(1.0, 1) == 1.0


def test_rows_are_counted_not_requests() -> None:
    """3 + 1 rows fill a batch of 4; the next 2 rows wait, the 1 row behind them does not overtake into a full batch."""
    q = queue(max_rows=4)
    a, b, c, d = admitted(q, request(3), request(2), request(1), request(1))
    assert q.take(0).batch == [a, c]
    assert q.take(0).batch == [b, d]
    q.check()


def test_groups_do_not_mix_and_the_oldest_goes_first() -> None:
    """Rows of other shapes keep their place."""
    q = queue()
    a, b, c = admitted(q, request(group="g"), request(group="h"), request(group="g"))
    assert q.take(0).batch == [a, c]
    assert q.take(0).batch == [b]


def test_a_request_without_group_goes_alone_and_at_once() -> None:
    """Nothing can join it, so it does not wait for company."""
    q = queue(max_delay=5.0)
    a, b = admitted(q, request(group=None, at=1.0), request(group=None, at=2.0))
    assert q.due(1.0, 1) == 1.0
    assert q.take(1.0).batch == [a]
    assert q.take(1.0).batch == [b]


def test_a_request_larger_than_a_batch_goes_alone() -> None:
    """It is not refused; whoever computes it cuts it up."""
    q = queue(max_rows=4)
    a, b = admitted(q, request(9), request(1))
    assert q.take(0).batch == [a]
    assert q.take(0).batch == [b]


def test_the_late_leave_before_the_batch() -> None:
    """Requests past their deadline are told so, not computed; at the deadline is past it."""
    q = queue()
    a, b, c = admitted(q, request(deadline=1.0), request(deadline=3.0), request(deadline=2.0))
    taken = q.take(2.0)
    assert taken.batch == [b]
    assert taken.late == [a, c]
    assert not len(q)
    q.check()


def test_who_leaves_is_not_computed() -> None:
    """A cancelled request leaves once; its rows leave with it."""
    q = queue()
    a, b = admitted(q, request(2), request(1))
    assert q.leave(a)
    assert not q.leave(a)
    assert q.rows == 1
    assert q.take(0).batch == [b]
    assert not q.leave(b)


@pytest.mark.parametrize(
    ("limits", "more", "unit"),
    [
        pytest.param({"max_queued_rows": 4}, request(2), "rows", id="rows"),
        pytest.param({"max_queued_bytes": 4}, request(1, size=4), "bytes", id="bytes"),
    ],
)
def test_a_full_queue_refuses_at_once(limits: dict[str, int], more: Waiting, unit: str) -> None:
    """The refusal names the limit and when to come back; nothing is changed by it."""
    q = queue(None, **limits)
    admitted(q, request(3))
    q.note_run(Taken([], [], 1), 0.2, 0.0)
    with pytest.raises(ResourceExhaustedError) as caught:
        q.admit(more)
    assert caught.value.reason == "QUEUE_FULL"
    assert caught.value.metadata["unit"] == unit
    assert caught.value.retry_after == pytest.approx(0.6)
    assert q.rows == 3
    q.check()


def test_an_empty_queue_takes_any_request() -> None:
    """Otherwise a request larger than the bound would be refused for ever."""
    admitted(queue(max_queued_rows=4), request(50))


def test_requests_without_rows_are_bounded_too() -> None:
    """Zero-row requests count as one each at the door."""
    q = queue(max_queued_rows=2)
    admitted(q, request(0), request(0))
    with pytest.raises(ResourceExhaustedError):
        q.admit(request(0))


def test_take_all_empties() -> None:
    """What a stop finds is handed over in order."""
    q = queue()
    everything = admitted(q, request(), request(group="h"), request(0))
    assert q.take_all() == everything
    assert q.due(0.0, 0) is None
    q.check()


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "take", "leave", "expire"]),
        st.integers(0, 6),  # rows, or which one leaves
        st.sampled_from(["g", "h", None]),
        st.one_of(st.none(), st.integers(0, 40)),  # deadline
        st.fixed_dictionaries(
            {
                "tenant": st.sampled_from(["", "a", "b"]),
                "level": st.integers(0, 1),
                "timeout": st.sampled_from([0.0, 0.0, 3.0, 9.0]),
            }
        ),
    ),
    max_size=60,
)
_Step = tuple[str, int, Hashable, int | None, dict[str, Any]]


@given(_STEPS)
def test_every_admitted_request_leaves_exactly_once(steps: list[_Step]) -> None:
    """Whatever happens in whatever order, sums hold and nobody is lost or answered twice."""
    q, clock = queue(max_rows=4, max_queued_rows=30, levels=2), count()
    inside: list[Waiting] = []
    gone: list[Waiting] = []
    for act, rows, group, deadline, terms in steps:
        now = float(next(clock))
        if act == "admit":
            r = request(rows, at=now, group=group, deadline=deadline, **terms)
            try:
                q.admit(r)
                inside.append(r)
            except ResourceExhaustedError:
                pass
        elif act == "take":
            taken = q.take(now)
            check_taken(taken, now)
            gone += [*taken.batch, *taken.late]
        elif act == "expire":
            gone += q.take_timed_out(now)
        elif inside and q.leave(inside[rows % len(inside)]):
            gone.append(inside[rows % len(inside)])
        q.check()
    gone += q.take_all()
    assert len(gone) == len(inside)
    assert {id(r) for r in gone} == {id(r) for r in inside}


def check_taken(taken: Taken, now: float) -> None:
    assert taken.rows == sum(r.rows for r in taken.batch)
    assert taken.rows <= 4 or len(taken.batch) == 1
    assert len({r.terms.group for r in taken.batch}) <= 1
    assert all(r.deadline is None or r.deadline > now for r in taken.batch)
    assert all(r.deadline is not None and r.deadline <= now for r in taken.late)
