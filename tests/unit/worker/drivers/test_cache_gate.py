"""The response cache before a batcher, with a batcher that answers when the test says so."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.errors import (
    DeadlineExceededError,
    InferplaneError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from services.worker.domain.assignment import CacheLimits
from services.worker.domain.batch import Answer
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.request_options import AnswerFacts, RequestOptions
from services.worker.domain.response_cache import ResponseCache, kept_size
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.cache_gate import Asking, CacheGate
from services.worker.ports.gate import Deliver

Y = {"y": np.array([2.0], np.float32), "z": np.array([3.0], np.float32)}
NO_STORE = RequestOptions(no_store=True)


@dataclass(slots=True, eq=False)
class Admitted:
    request: InferRequest
    deadline: float | None
    deliver: Deliver


@dataclass(slots=True)
class Behind:
    """Gate that keeps what it is given."""

    admitted: list[Admitted] = field(default_factory=list)
    left: list[Admitted] = field(default_factory=list)
    refuses: InferplaneError | None = None

    def admit(self, request: InferRequest, deadline: float | None, deliver: Deliver) -> Admitted:
        if self.refuses is not None:
            raise self.refuses
        self.admitted.append(Admitted(request, deadline, deliver))
        return self.admitted[-1]

    def leave(self, ticket: Admitted) -> None:
        self.left.append(ticket)

    def answer(self, answer: Answer = Y) -> None:
        """Answer the oldest."""
        self.admitted.pop(0).deliver(answer)


class Fixture:
    """A gate, what is behind it, and what callers were told."""

    def __init__(self, max_bytes: int = 100_000, ttl: float = 0.0) -> None:
        self.behind, self.statistics = Behind(), VersionStatistics()
        self.cache = ResponseCache(CacheLimits(max_bytes, ttl))
        self.flushes = 0
        self.told: dict[str, Answer] = {}
        self.gate = CacheGate(self.behind, self.cache, "d" * 64, self.statistics, self._count_flush)

    def _count_flush(self) -> None:
        self.flushes += 1

    def ask(self, who: str, request: InferRequest, deadline: float | None = None) -> Asking:
        """What `leave` takes."""
        return self.gate.admit(request, deadline, lambda answer: self.told.__setitem__(who, answer))

    def hits_and_misses(self) -> tuple[int, int]:
        return self.statistics.cache_hit.count, self.statistics.cache_miss.count

    def check(self) -> None:
        """Nothing is left behind when nobody waits."""
        self.cache.check()
        assert (self.gate._flights, self.gate._joined, self.gate._found) == ({}, 0, [])


def asked(x: float = 1.0, **changes: Any) -> InferRequest:
    request = InferRequest({"x": np.array([x], np.float32)}, ("y",), facts=AnswerFacts())
    return replace(request, **changes)


async def test_an_equal_request_is_answered_without_computing() -> None:
    """The second is a hit: told later, marked, counted, with the outputs in its own order."""
    fixture = Fixture()
    first, second = asked(outputs=("y", "z")), asked(outputs=("z", "y"))
    fixture.ask("first", first)
    fixture.behind.answer()
    fixture.ask("second", second)
    assert "second" not in fixture.told
    await asyncio.sleep(0)
    answer = fixture.told["second"]
    assert not isinstance(answer, InferplaneError)
    assert list(answer) == ["z", "y"]
    assert (answer["z"].tolist(), answer["y"].tolist()) == ([3.0], [2.0])
    assert (fixture.behind.admitted, fixture.flushes) == ([], 1)
    assert first.facts is not None
    assert second.facts is not None
    assert (first.facts.cache_hit, second.facts.cache_hit) == (False, True)
    assert fixture.hits_and_misses() == (1, 1)
    assert fixture.statistics.cache_bytes() == kept_size(Y)
    fixture.check()


async def test_equal_requests_under_way_are_computed_once() -> None:
    """All are told of the one answer; those that joined count as hits."""
    fixture = Fixture()
    requests = [asked() for _ in range(3)]
    for number, request in enumerate(requests):
        fixture.ask(str(number), request)
    assert len(fixture.behind.admitted) == 1
    fixture.behind.answer()
    assert sorted(fixture.told) == ["0", "1", "2"]
    assert [r.facts is not None and r.facts.cache_hit for r in requests] == [False, True, True]
    assert fixture.hits_and_misses() == (2, 1)
    fixture.check()


async def test_tenants_share_nothing() -> None:
    """The same request of another tenant is computed, also while the first is under way."""
    fixture = Fixture()
    fixture.ask("a", asked(tenant="a"))
    fixture.ask("b", asked(tenant="b"))
    assert len(fixture.behind.admitted) == 2
    fixture.behind.answer()
    fixture.behind.answer()
    fixture.ask("b again", asked(tenant="b"))
    assert fixture.behind.admitted == []
    assert fixture.hits_and_misses() == (0, 2)


async def test_no_store_is_neither_answered_from_it_nor_kept() -> None:
    """It is computed though the answer is known, and the next one too."""
    fixture = Fixture()
    fixture.ask("stored", asked())
    fixture.behind.answer()
    fixture.ask("not stored", asked(options=NO_STORE))
    fixture.behind.answer({"y": np.array([9.0], np.float32)})
    fixture.ask("other", asked(5.0, options=NO_STORE))
    fixture.behind.answer()
    fixture.ask("other again", asked(5.0))
    assert len(fixture.behind.admitted) == 1
    fixture.ask("stored again", asked())
    await asyncio.sleep(0)
    answer = fixture.told["stored again"]
    assert not isinstance(answer, InferplaneError)
    assert answer["y"].tolist() == [2.0]


async def test_an_error_is_told_to_all_and_not_kept() -> None:
    """The next request is computed; errors are neither hits nor misses."""
    fixture, error = Fixture(), InvalidArgumentError("negative")
    fixture.ask("1", asked())
    fixture.ask("2", asked())
    fixture.behind.answer(error)
    assert fixture.told == {"1": error, "2": error}
    assert fixture.hits_and_misses() == (0, 0)
    fixture.check()
    fixture.ask("3", asked())
    assert len(fixture.behind.admitted) == 1


async def test_a_refusal_leaves_nothing_behind() -> None:
    """A full queue is the caller's news at once."""
    fixture = Fixture()
    fixture.behind.refuses = ResourceExhaustedError("full")
    with pytest.raises(ResourceExhaustedError):
        fixture.ask("1", asked())
    fixture.check()


async def test_what_nobody_waits_for_is_not_computed() -> None:
    """The first may go, others still wait; with the last one the request leaves the queue."""
    fixture = Fixture()
    first, second = fixture.ask("1", asked()), fixture.ask("2", asked())
    fixture.gate.leave(first)
    assert fixture.behind.left == []
    fixture.gate.leave(second)
    assert fixture.behind.left == fixture.behind.admitted
    fixture.gate.leave(second)
    fixture.check()
    fixture.ask("3", asked())
    assert len(fixture.behind.admitted) == 2


async def test_one_who_stays_gets_the_answer_of_one_who_went() -> None:
    """The computing goes on for the second."""
    fixture = Fixture()
    first = fixture.ask("1", asked())
    fixture.ask("2", asked())
    fixture.gate.leave(first)
    fixture.behind.answer()
    assert list(fixture.told) == ["2"]
    fixture.check()


async def test_a_hit_whose_caller_went_is_not_told() -> None:
    """Between the hit and the telling."""
    fixture = Fixture()
    fixture.ask("1", asked())
    fixture.behind.answer()
    fixture.gate.leave(fixture.ask("2", asked()))
    await asyncio.sleep(0)
    assert list(fixture.told) == ["1"]
    fixture.check()


async def test_the_first_ones_deadline_is_its_own() -> None:
    """1. The first is late. 2. It is told. 3. The others are computed anew, together, and answered."""
    fixture, late = Fixture(), DeadlineExceededError("late")
    fixture.ask("1", asked(), deadline=1.0)
    fixture.ask("2", asked())
    fixture.ask("3", asked(), deadline=9e9)
    fixture.behind.answer(late)
    assert fixture.told == {"1": late}
    assert [admitted.deadline for admitted in fixture.behind.admitted] == [None]
    fixture.behind.answer()
    assert sorted(fixture.told) == ["1", "2", "3"]
    assert fixture.hits_and_misses() == (1, 1)
    fixture.check()


async def test_a_queue_that_is_too_slow_is_so_for_all() -> None:
    """What ended by the queue's own timeout is not asked again: waiting would have no end."""
    fixture, late = Fixture(), DeadlineExceededError("it waited 0.1 s", reason="QUEUE_TIMEOUT")
    patient = RequestOptions(timeout=0.1)
    fixture.ask("1", asked(options=patient))
    fixture.ask("2", asked(options=patient))
    fixture.behind.answer(late)
    assert fixture.told == {"1": late, "2": late}
    fixture.check()


async def test_when_there_is_no_room_for_those_who_joined_they_are_told() -> None:
    """Asked anew after the first was late, they are refused as any request."""
    fixture, full = Fixture(), ResourceExhaustedError("full")
    fixture.ask("1", asked(), deadline=1.0)
    fixture.ask("2", asked())
    fixture.behind.refuses = full
    fixture.behind.answer(DeadlineExceededError("late"))
    assert fixture.told["2"] is full
    fixture.check()


async def test_other_patience_is_another_computing() -> None:
    """A request of higher priority does not wait for one of lower; both answers are the same entry."""
    fixture = Fixture()
    fixture.ask("slow", asked())
    fixture.ask("urgent", asked(options=RequestOptions(priority=1)))
    assert len(fixture.behind.admitted) == 2
    fixture.behind.answer()
    fixture.behind.answer()
    assert len(fixture.cache) == 1


async def test_telling_one_may_make_another_leave() -> None:
    """As when a connection breaks while its answers are written."""
    fixture = Fixture()
    tickets: list[Asking] = []

    def deliver(answer: Answer) -> None:
        fixture.told["1"] = answer
        fixture.gate.leave(tickets[1])

    tickets.append(fixture.gate.admit(asked(), None, deliver))
    tickets.append(fixture.ask("2", asked()))
    fixture.behind.answer()
    assert list(fixture.told) == ["1"]
    fixture.check()


async def test_an_answer_larger_than_the_bound_is_given_and_not_kept() -> None:
    """Each such request is computed, and those under way together still once."""
    fixture = Fixture(max_bytes=10)
    for who in ("1", "2"):
        fixture.ask(who, asked())
    fixture.behind.answer()
    assert sorted(fixture.told) == ["1", "2"]
    fixture.ask("3", asked())
    assert len(fixture.behind.admitted) == 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "leave", "answer", "error", "late", "tick"]), st.integers(0, 3)
    ),
    max_size=40,
)


@given(STEPS)
def test_each_caller_is_told_once_or_has_left(steps: list[tuple[str, int]]) -> None:
    """Whatever comes in which order; in the end nothing is left behind, and each answer is that of its own request."""

    async def play() -> None:
        fixture, told, left = Fixture(), list[int](), set[int]()
        tickets: list[tuple[Asking, int]] = []

        def ask(which: int) -> None:
            number = len(tickets)
            deadline = None if which % 2 else 1.0
            # A keyed answer: request n is answered with 10 n.
            request = asked(float(which // 2))

            def deliver(answer: Answer) -> None:
                assert number not in left
                told.append(number)
                if not isinstance(answer, InferplaneError):
                    assert answer["y"].tolist() == [10.0 * (which // 2)]

            tickets.append((fixture.gate.admit(request, deadline, deliver), which))

        def answer(error: InferplaneError | None) -> None:
            waiting = [a for a in fixture.behind.admitted if a not in fixture.behind.left]
            if waiting:
                fixture.behind.admitted.remove(waiting[0])
                x = float(waiting[0].request.feeds["x"][0])
                waiting[0].deliver(error or {"y": np.array([10 * x], np.float32)})

        for what, which in steps:
            if what == "ask":
                ask(which)
            elif what == "leave" and tickets:
                number = which % len(tickets)
                left.add(number)
                fixture.gate.leave(tickets[number][0])
            elif what == "tick":
                await asyncio.sleep(0)
            else:
                errors = {
                    "error": InvalidArgumentError("wrong"),
                    "late": DeadlineExceededError("late"),
                }
                answer(errors.get(what))
        while [a for a in fixture.behind.admitted if a not in fixture.behind.left]:
            answer(None)
        await asyncio.sleep(0)
        assert len(told) == len(set(told))
        assert set(told) | left == set(range(len(tickets)))
        fixture.check()

    asyncio.run(play())
