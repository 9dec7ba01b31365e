"""What a queue refuses at the door: rows, bytes, a tenant's share, waits that are too long."""

import pytest

from services.rpc.errors import ResourceExhaustedError
from services.worker.domain.batch import BatchQueue, Taken
from tests.unit.worker.domain.queue_requests import admitted, queue, request


def flood(q: BatchQueue, tenant: str, **terms: int) -> int:
    """As many as are let in."""
    for count in range(1000):
        try:
            admitted(q, request(tenant=tenant, **terms))
        except ResourceExhaustedError:
            return count
    raise AssertionError("there is no end")


def test_one_tenant_alone_cannot_fill_the_queue() -> None:
    """It gets four fifths; there is room for others, and again for others after them."""
    q = queue()
    assert flood(q, "first") == 80
    assert flood(q, "second") >= 10
    assert flood(q, "third") >= 1


def test_one_tenant_alone_cannot_fill_the_bytes() -> None:
    """The same holds for bytes."""
    q = queue(max_queued_rows=10_000)
    assert flood(q, "first", size=10) == 80
    assert flood(q, "second", size=10) >= 10


def test_callers_without_a_tenant_may_use_all_of_it() -> None:
    """Where nobody says who calls there is nobody to share with."""
    q = queue()
    assert flood(q, "") == 100


def learned(q: BatchQueue, seconds_per_row: float) -> BatchQueue:
    q.note_run(Taken([], [], rows=10, full=True), 10 * seconds_per_row, 0.0)
    return q


def test_a_wait_that_is_too_long_is_refused_at_once() -> None:
    """Rows that wait take 0.1 s each: the bound of 1 s is reached at ten, and the hint says when there is room."""
    q = learned(queue(max_wait=1.0), 0.1)
    admitted(q, *(request() for _ in range(11)))
    with pytest.raises(ResourceExhaustedError) as caught:
        q.admit(request())
    assert caught.value.reason == "QUEUE_TOO_LONG"
    assert caught.value.retry_after == pytest.approx(0.1)
    assert "max_queue_wait" in caught.value.message


def test_a_few_batches_may_wait_however_long_they_take() -> None:
    """A bound in time does not refuse what the next batches could take."""
    q = learned(queue(max_wait=1.0, least_rows=16), 10.0)
    admitted(q, *(request() for _ in range(16)))
    with pytest.raises(ResourceExhaustedError):
        q.admit(request())


def test_instances_share_what_waits() -> None:
    """Two at once halve the wait."""
    q = learned(queue(max_wait=1.0, instances=2), 0.1)
    admitted(q, *(request() for _ in range(21)))
    with pytest.raises(ResourceExhaustedError):
        q.admit(request())


def test_a_deadline_that_would_pass_is_refused_at_once() -> None:
    """It is told now rather than when it is too late."""
    q = learned(queue(), 0.1)
    admitted(q, *(request() for _ in range(10)))
    admitted(q, request(at=5.0, deadline=6.5))
    with pytest.raises(ResourceExhaustedError, match="the deadline"):
        q.admit(request(at=5.0, deadline=5.5))


def test_an_empty_queue_takes_a_request_however_long_it_takes() -> None:
    """What is computed at once does not wait."""
    q = learned(queue(max_wait=0.1), 50.0)
    admitted(q, request(deadline=1.0))


def test_waits_are_of_a_tenants_own_turn() -> None:
    """Behind a flood of another, the first request of a tenant waits for a batch, not for the flood."""
    q = learned(queue(max_wait=1.0), 0.1)
    admitted(q, *(request(tenant="many") for _ in range(11)))
    assert q.wait(0, "many") == pytest.approx(1.1)
    admitted(q, request(tenant="one"))
    assert q.wait(0, "one") == pytest.approx(0.6)


def test_waits_are_of_what_goes_first() -> None:
    """Lower priorities don't count."""
    q = learned(queue(levels=2), 0.1)
    admitted(q, *(request(level=1) for _ in range(10)))
    assert q.wait(0, "") == 0.0
    assert q.wait(1, "") == pytest.approx(1.0)


def test_a_slow_run_is_forgotten() -> None:
    """One hiccup does not refuse for ever: a run that was not full shows that rows cost less."""
    q = learned(queue(max_wait=1.0), 100.0)
    q.note_run(Taken([], [], rows=1), 0.01, 0.0)
    admitted(q, *(request() for _ in range(50)))


def test_requests_that_waited_too_long_are_taken_out() -> None:
    """By their own timeout, the earliest first; the others stay."""
    q = queue()
    first, second, third = admitted(
        q, request(at=1.0, timeout=3.0), request(at=2.0, timeout=1.0), request(at=1.0)
    )
    assert q.next_timeout() == 3.0
    assert q.take_timed_out(2.9) == []
    assert q.take_timed_out(3.0) == [second]
    q.leave(first)
    assert q.next_timeout() is None
    assert q.take(9.0).batch == [third]
    q.check()


def test_timeouts_of_those_who_left_are_let_go() -> None:
    """Requests that are computed long before their timeout leave nothing behind."""
    q = queue()
    for _ in range(1000):
        admitted(q, request(timeout=1000.0))
        q.take(0.0)
    assert len(q._timeouts) < 100
