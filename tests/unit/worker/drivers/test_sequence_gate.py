"""The gate before the batcher of a version with state, with a batcher that a test holds and lets go."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rpc.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InferplaneError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.domain.assignment import SequenceLimits, SequenceState
from services.worker.domain.batch import Answer
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.request_options import RequestOptions
from services.worker.domain.sequence_part import SequencePart
from services.worker.domain.sequence_state import StatePlan
from services.worker.domain.sequences import LineLimits
from services.worker.domain.signature import Signature, spec_of
from services.worker.drivers.sequence_gate import SequenceGate

STATES = (SequenceState("state", "after"),)
SIGNATURE = Signature(
    (spec_of("x", "FP32", (-1, 1)), spec_of("state", "FP32", (-1, 1))),
    (spec_of("total", "FP32", (-1, 1)), spec_of("after", "FP32", (-1, 1))),
)


START, NEXT, END = SequencePart(1, starts=True), SequencePart(1), SequencePart(1, ends=True)


@dataclass(eq=False)
class Inside:
    """A request in the batcher."""

    request: InferRequest
    deliver: Callable[[Answer], None]

    @property
    def feeds(self) -> tuple[float, float]:
        """What it would be computed from: x and state."""
        x, state = (float(self.request.feeds[name][0, 0]) for name in ("x", "state"))
        return x, state


class HeldBatcher:
    """Keeps requests until `run` or `fail`; a running sum."""

    def __init__(self) -> None:
        self.inside: list[Inside] = []
        self.refusal: InferplaneError | None = None

    def admit(self, request: InferRequest, deadline: float | None, deliver: Any) -> Inside:
        if self.refusal is not None:
            raise self.refusal
        self.inside.append(Inside(request, deliver))
        return self.inside[-1]

    def leave(self, ticket: Inside) -> None:
        if ticket in self.inside:
            self.inside.remove(ticket)

    def run(self, index: int = 0) -> None:
        one = self.inside.pop(index)
        total = one.request.feeds["x"] + one.request.feeds["state"]
        answers = {"total": total, "after": total}
        one.deliver({name: answers[name] for name in one.request.outputs})

    def fail(self, error: InferplaneError, index: int = 0) -> None:
        self.inside.pop(index).deliver(error)


@dataclass
class Asker:
    """A gate, and what it has answered, by the number of the request."""

    now: float = 0.0
    batcher: HeldBatcher = field(default_factory=HeldBatcher)
    answers: dict[int, Answer] = field(default_factory=dict)
    limits: SequenceLimits = field(default_factory=lambda: SequenceLimits(STATES))
    asked: int = 0

    def __post_init__(self) -> None:
        plan = StatePlan.of(SIGNATURE, STATES)
        self.gate = SequenceGate(
            self.batcher, plan, self.limits, LineLimits(100, 1 << 20), lambda: self.now
        )

    def ask(
        self,
        x: float = 1.0,
        part: SequencePart | None = NEXT,
        *,
        tenant: str = "",
        deadline: float | None = None,
    ) -> tuple[int, Any]:
        """Number and ticket of a request."""
        number, self.asked = self.asked, self.asked + 1

        def deliver(answer: Answer) -> None:
            assert number not in self.answers
            self.answers[number] = answer

        feeds = {"x": np.array([[x]], np.float32)}
        options = RequestOptions(sequence=part)
        request = InferRequest(feeds, ("total",), options, None, tenant)
        return number, self.gate.admit(request, deadline, deliver)

    def total(self, number: int) -> float:
        """The sum that a request was answered."""
        answer = self.answers[number]
        assert isinstance(answer, Mapping)
        assert list(answer) == ["total"]
        array: Array = answer["total"]
        return float(array[0, 0])

    def error(self, number: int) -> InferplaneError:
        """The error that a request was answered."""
        answer = self.answers[number]
        assert isinstance(answer, InferplaneError)
        return answer


async def test_state_is_fed_kept_and_hidden() -> None:
    """The batcher sees the state and gives the next; the caller sees neither."""
    asker = Asker()
    asker.ask(3.0, START)
    assert asker.batcher.inside[0].request.outputs == ("total", "after")
    asker.batcher.run()
    asker.ask(4.0)
    assert asker.batcher.inside[0].feeds == (4.0, 3.0)
    asker.batcher.run()
    asker.ask(1.0, END)
    asker.batcher.run()
    assert [asker.total(n) for n in range(3)] == [3.0, 7.0, 8.0]
    with pytest.raises(FailedPreconditionError):
        asker.ask()


async def test_one_request_of_a_sequence_is_inside_at_a_time() -> None:
    """Requests sent without waiting follow each other; those of other sequences go in beside them."""
    asker = Asker()
    for part in (START, NEXT, NEXT):
        asker.ask(1.0, part)
    asker.ask(10.0, SequencePart("b", starts=True))
    asker.ask(100.0, START, tenant="other")
    assert [i.feeds for i in asker.batcher.inside] == [(1.0, 0.0), (10.0, 0.0), (100.0, 0.0)]
    for _ in range(5):
        asker.batcher.run()
    assert [asker.total(n) for n in range(5)] == [1.0, 2.0, 3.0, 10.0, 100.0]


async def test_a_failed_run_changes_nothing_and_says_so() -> None:
    """Neither a request in the middle, nor the end, nor a start."""
    asker = Asker()
    asker.ask(3.0, START)
    asker.batcher.run()
    for part in (NEXT, END, START):
        number, _ = asker.ask(9.0, part)
        asker.batcher.fail(InvalidArgumentError("no", reason="WHY"))
        error = asker.error(number)
        assert (error.message, error.reason) == (
            "no; the state of sequence 1 is unchanged",
            "WHY",
        )
    number, _ = asker.ask(1.0)
    asker.batcher.run()
    assert asker.total(number) == 4.0
    number, _ = asker.ask(1.0, SequencePart("new", starts=True))
    asker.batcher.fail(InvalidArgumentError("no"))
    assert asker.error(number).message == "no; sequence 'new' has not begun"
    assert len(asker.gate.sequences) == 1


async def test_after_a_failed_start_what_waits_is_refused_in_its_turn() -> None:
    """Each with its own error, in order; a later start begins."""
    asker = Asker()
    for part in (START, NEXT, NEXT, START, NEXT):
        asker.ask(2.0, part)
    asker.batcher.fail(InvalidArgumentError("no"))
    assert [asker.error(n).reason for n in (1, 2)] == ["SEQUENCE_UNKNOWN"] * 2
    asker.batcher.run()
    asker.batcher.run()
    assert [asker.total(n) for n in (3, 4)] == [2.0, 4.0]
    asker.gate.sequences.check()


async def test_a_caller_who_leaves_changes_nothing() -> None:
    """Waiting or computing: the request is not answered, the state stays, the next one has its turn."""
    asker = Asker()
    asker.ask(1.0, START)
    asker.batcher.run()
    _, computing = asker.ask(10.0)
    _, waiting = asker.ask(100.0)
    last, _ = asker.ask(1000.0)
    asker.gate.leave(waiting)
    assert len(asker.batcher.inside) == 1
    asker.gate.leave(computing)
    asker.gate.leave(computing)
    assert [i.feeds for i in asker.batcher.inside] == [(1000.0, 1.0)]
    asker.batcher.run()
    assert asker.answers.keys() == {0, last}
    asker.gate.sequences.check()


async def test_deadline_before_its_turn() -> None:
    """It is not computed."""
    asker = Asker()
    asker.ask(1.0, START)
    late, _ = asker.ask(1.0, NEXT, deadline=5.0)
    asker.now = 6.0
    asker.batcher.run()
    assert isinstance(asker.error(late), DeadlineExceededError)
    assert not asker.batcher.inside


async def test_refused_at_the_door() -> None:
    """No id, more rows than one, a full batcher: raised, and nothing is left."""
    asker = Asker()
    with pytest.raises(InvalidArgumentError, match="sequence_id"):
        asker.ask(part=None)
    rows = InferRequest(
        {"x": np.ones((2, 1), np.float32)}, ("total",), RequestOptions(sequence=START)
    )
    with pytest.raises(InvalidArgumentError, match="2 rows"):
        asker.gate.admit(rows, None, lambda _: None)
    asker.batcher.refusal = ResourceExhaustedError("full", retry_after=0.5)
    with pytest.raises(ResourceExhaustedError, match="full; sequence 1 has not begun") as caught:
        asker.ask(part=START)
    assert caught.value.retry_after == 0.5
    asker.batcher.refusal = None
    number, _ = asker.ask(1.0, START)
    asker.batcher.run()
    assert asker.total(number) == 1.0


async def test_an_unloaded_version_ends_what_waits() -> None:
    """Once the batcher takes nothing more, every request in line has its error, without words about state."""
    asker = Asker()
    asker.ask(1.0, START)
    asker.batcher.run()
    for _ in range(3):
        asker.ask(1.0)
    asker.batcher.refusal = UnavailableError("going", reason="VERSION_UNLOADED")
    asker.batcher.fail(asker.batcher.refusal)
    assert [asker.error(n).message for n in (1, 2, 3)] == ["going"] * 3


async def test_memory_of_idle_sequences_comes_back_by_itself() -> None:
    """A timer looks again, though nobody calls."""
    asker = Asker(limits=SequenceLimits(STATES, idle_timeout=0.0))
    asker.ask(1.0, START)
    asker.batcher.run()
    loop = asyncio.get_running_loop()
    later = loop.create_future()
    loop.call_later(0.001, later.set_result, None)
    await later
    assert not len(asker.gate.sequences)


async def test_states_move_to_another_batcher() -> None:
    """What runs ends where it is; what follows goes to the new one, with the state."""
    asker = Asker()
    asker.ask(1.0, START)
    _, leaving = asker.ask(10.0)
    old, new = asker.batcher, HeldBatcher()
    asker.gate.move_to(new)
    old.run()
    assert [i.feeds for i in new.inside] == [(10.0, 1.0)]
    asker.gate.leave(leaving)
    assert not new.inside


async def test_a_callback_may_ask_for_more() -> None:
    """What a caller asks when it is told stands behind those that wait already."""
    asker = Asker()
    asker.ask(1.0, START)
    answers: list[Answer] = []

    def again(answer: Answer) -> None:
        answers.append(answer)
        asker.ask(100.0)

    request = InferRequest(
        {"x": np.array([[10.0]], np.float32)}, ("total",), RequestOptions(sequence=NEXT)
    )
    asker.gate.admit(request, None, again)
    third, _ = asker.ask(1000.0)
    while asker.batcher.inside:
        asker.batcher.run()
    assert asker.total(third) == 1011.0
    assert asker.total(2) == 1111.0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_interleaving_gives_each_sequence_its_own_sums(data: st.DataObject) -> None:
    """Whatever runs, fails or leaves, and when: answers are those of the sequence computed alone."""

    async def go() -> None:
        asker = Asker()
        expected: dict[int, dict[int, float]] = {n: {} for n in range(3)}
        orders: dict[int, list[int]] = {n: [] for n in range(3)}
        parts: dict[int, tuple[float, SequencePart]] = {}
        failed: set[int] = set()
        for _ in range(data.draw(st.integers(1, 30))):
            what = data.draw(st.sampled_from(["ask", "ask", "run", "fail"]))
            if what == "ask":
                sequence = data.draw(st.integers(0, 2))
                part = SequencePart(
                    sequence + 1,
                    starts=not orders[sequence],
                    ends=data.draw(st.integers(0, 9)) == 0,
                )
                x = float(data.draw(st.integers(1, 99)))
                try:
                    number, _ = asker.ask(x, part)
                except FailedPreconditionError:
                    continue
                orders[sequence].append(number)
                parts[number] = (x, part)
            elif asker.batcher.inside:
                index = data.draw(st.integers(0, len(asker.batcher.inside) - 1))
                if what == "run":
                    asker.batcher.run(index)
                else:
                    before = set(asker.answers)
                    asker.batcher.fail(InvalidArgumentError("no"), index)
                    failed |= {
                        n
                        for n in set(asker.answers) - before
                        if asker.error(n).reason != "SEQUENCE_UNKNOWN"
                    }
        while asker.batcher.inside:
            asker.batcher.run()
        for sequence, order in orders.items():
            value: float | None = None
            for number in order:
                x, part = parts[number]
                if number in failed:
                    continue
                if value is None and not part.starts:
                    assert asker.error(number).reason == "SEQUENCE_UNKNOWN"
                    continue
                value = x + (0.0 if part.starts or value is None else value)
                expected[sequence][number] = value
                if part.ends:
                    value = None
            for number, total in expected[sequence].items():
                assert asker.total(number) == total
        assert asker.answers.keys() == parts.keys()
        asker.gate.sequences.check()

    asyncio.run(go())
