"""Deadlines, the pace of a queue, the health of a runner: small things with a memory."""

from services.worker.llm.domain.deadlines import Deadlines
from services.worker.llm.domain.generation import RequestId
from services.worker.llm.domain.queue_pace import QueuePace
from services.worker.llm.domain.runner_health import RunnerHealth


def test_who_is_late_is_told_once_and_earliest_first() -> None:
    """Whoever has ended is not late any more."""
    still_open = {RequestId(number) for number in (1, 2, 3)}
    deadlines = Deadlines(still_open)
    for deadline, number in ((3.0, 1), (1.0, 2), (2.0, 3)):
        deadlines.add(deadline, RequestId(number))
    assert deadlines.next() == 1.0
    still_open.remove(RequestId(2))
    assert deadlines.passed(2.5) == [3]
    assert deadlines.passed(2.5) == []
    assert deadlines.next() == 3.0


def test_deadlines_of_what_has_ended_are_forgotten() -> None:
    """Also those far in the future."""
    still_open = {RequestId(0)}
    deadlines = Deadlines(still_open)
    for number in range(10_000):
        deadlines.add(1e9, RequestId(number))
    assert len(deadlines._entries) < 200


def test_the_wait_is_told_by_how_fast_requests_began_while_others_waited() -> None:
    """Time in which nothing waited does not count."""
    pace = QueuePace()
    assert pace.seconds_for(10) == 0.0
    pace.note(0, 5, 0.0)
    pace.note(2, 3, 1.0)
    assert pace.seconds_for(10) == 5.0
    pace.note(3, 0, 2.5)
    pace.note(0, 1, 1000.0)
    pace.note(1, 0, 1000.5)
    assert pace.seconds_for(10) == 5.0


def test_a_runner_fails_after_three_in_a_row_until_one_works_or_time_has_passed() -> None:
    """Who is avoided can't show that it works, so it gets another chance."""
    health = RunnerHealth()
    for now in (1.0, 2.0):
        health.note(failed=True, now=now)
        assert health.failing_for(now) is None
    health.note(failed=True, now=3.0)
    assert health.failing_for(4.0) == 3.0
    assert health.failing_for(40.0) is None
    health.note(failed=True, now=41.0)
    assert health.failing_for(41.0) == 40.0
    health.note(failed=False, now=42.0)
    assert health.failing_for(42.0) is None
