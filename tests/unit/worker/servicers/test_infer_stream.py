"""A stream of requests without its transport, with a version that a test holds and lets go."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inference import open_inference_pb2 as oip

from services.rpc.errors import (
    CancelledError,
    InferplaneError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.domain.batch import Answer
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.routing import Asked, unknown
from services.worker.drivers.open_streams import OpenStreams
from services.worker.drivers.tab import NO_TAB, AnyTab, CallMark
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.infer_stream import InferStream, StreamHead
from tests.models import good
from tests.unit.worker.specs import spec_of_model

NAME = "models/m/versions/1"


@dataclass
class HeldVersion:
    """What a stream uses of ServedVersion; requests wait until `answer`."""

    spec: Any = field(default_factory=lambda: spec_of_model(good.affine(2.0, 1)))
    waiting: list[tuple[InferRequest, Callable[[Answer], None]]] = field(default_factory=list)
    left: int = 0
    ended: list[BaseException | None] = field(default_factory=list)
    begun: int = 0
    refusal: InferplaneError | None = None

    def begin(self) -> float:
        self.begun += 1
        return 0.0

    def end(self, started: float, error: BaseException | None) -> None:
        self.ended.append(error)

    def enter(self, request: InferRequest, mark: CallMark) -> AnyTab:
        return NO_TAB

    def admit(self, request: InferRequest, deadline: float | None, deliver: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        self.waiting.append((request, deliver))
        return self.waiting[-1]

    def leave(self, ticket: Any) -> None:
        self.left += 1
        if ticket in self.waiting:
            self.waiting.remove(ticket)

    def answer(self, index: int = 0, error: InferplaneError | None = None) -> None:
        """Compute one that waits."""
        request, deliver = self.waiting.pop(index)
        x = request.feeds["x"]
        deliver(error or {"y": 2 * x, "z": -x})


class HeldRoster:
    """One version, called `m`."""

    def __init__(self) -> None:
        self.streams = OpenStreams()
        self.version = HeldVersion()

    def find(self, asked: Asked) -> HeldVersion:
        if asked.model_name != "m":
            raise unknown(asked)
        return self.version


class Told:
    """An outlet, and the stream before it."""

    def __init__(self, *, ends_at_errors: bool = False, max_bytes: int = 1 << 20) -> None:
        self.roster = HeldRoster()
        self.version = self.roster.version
        self.written: list[oip.ModelStreamInferResponse] = []
        self.finished: list[InferplaneError | None] = []
        self.moves = 0
        self.on_move: Callable[[], None] = lambda: None
        source = AnswerSource(cast(Any, self.roster), lambda: True, "0", max_bytes)
        head = StreamHead(None, None, None, ends_at_errors)
        self.stream = InferStream(source, head, self)

    def write(self, answer: oip.ModelStreamInferResponse) -> None:
        assert not self.finished
        self.written.append(answer)

    def finish(self, error: InferplaneError | None) -> None:
        self.finished.append(error)

    def moved(self) -> None:
        self.moves += 1
        self.on_move()

    def take(self, number: int, model: str = "m", size: int = 10) -> None:
        request = oip.ModelInferRequest(model_name=model, id=str(number))
        request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
        request.raw_input_contents.append(np.float32(number).tobytes())
        self.stream.take(request, size)

    @property
    def ids(self) -> list[str]:
        """Of what was written; errors with a mark."""
        return [a.infer_response.id + "!" * bool(a.error_message) for a in self.written]

    def check_nothing_left(self) -> None:
        assert len(self.version.ended) == self.version.begun
        assert not self.version.waiting
        assert not len(self.roster.streams)


def test_answers_keep_the_order_of_requests() -> None:
    """All are in the queue at once; the first one's answer lets the others out."""
    told = Told()
    for number in range(3):
        told.take(number)
    assert len(told.version.waiting) == 3
    told.version.answer(2)
    told.version.answer(1)
    assert told.ids == []
    told.version.answer(0)
    assert told.ids == ["0", "1", "2"]
    told.stream.half_close()
    assert told.finished == [None]
    told.check_nothing_left()


def test_errors_have_their_place_id_and_reason() -> None:
    """Refused at the door, unknown, full, failed: the stream goes on after each."""
    told = Told()
    told.take(0)
    told.take(1, "nobody")
    told.version.refusal = ResourceExhaustedError("full", reason="QUEUE_FULL", retry_after=0.25)
    told.take(2)
    told.version.refusal = None
    told.stream.refuse(InvalidArgumentError("no message"))
    told.take(4)
    told.version.answer(1, InvalidArgumentError("bad"))
    assert told.ids == []
    told.version.answer(0)
    assert told.ids == ["0", "1!", "2!", "!", "4!"]
    said = told.written[2].infer_response.parameters
    assert told.written[2].error_message == "full"
    assert said["error_code"].string_param == "RESOURCE_EXHAUSTED"
    assert said["error_reason"].string_param == "QUEUE_FULL"
    assert said["retry_after_ms"].int64_param == 250
    told.take(5)
    told.version.answer(0)
    assert told.ids[-1] == "5"


def test_an_error_may_end_the_stream() -> None:
    """In its place: what came before is written, what came after leaves the queue."""
    told = Told(ends_at_errors=True)
    for number in range(4):
        told.take(number)
    error = InvalidArgumentError("bad")
    told.version.answer(1, error)
    told.version.answer(1)
    assert not told.finished
    told.version.answer(0)
    assert told.ids == ["0"]
    assert told.finished == [error]
    assert told.version.left == 1
    told.take(9)
    told.check_nothing_left()


def test_what_is_gone_leaves_the_queue() -> None:
    """Nothing is written any more, each request is counted once, with why."""
    told = Told()
    for number in range(3):
        told.take(number)
    told.version.answer(1)
    why = CancelledError("gone")
    told.stream.gone(why)
    told.stream.gone(why)
    assert (told.ids, told.finished, told.version.left) == ([], [], 2)
    assert told.version.ended == [None, why, why]
    told.check_nothing_left()


def test_a_full_stream_takes_no_more_until_answers_leave() -> None:
    """128 requests, or as many bytes as one message may have; a larger one is taken alone."""
    told = Told(max_bytes=100)
    told.take(0, size=1000)
    assert told.stream.is_full
    told.version.answer()
    assert not told.stream.is_full
    told = Told()
    for number in range(127):
        told.take(number)
    assert not told.stream.is_full
    told.take(127)
    assert told.stream.is_full
    told.version.answer(1)
    assert told.stream.is_full
    told.version.answer(0)
    assert not told.stream.is_full
    assert told.moves == 2


def test_room_may_bring_the_next_request_at_once() -> None:
    """A transport that reads on when told so: refused requests in a long row are no recursion."""
    told = Told()
    left = list(range(1, 5000))

    def read_on() -> None:
        if left:
            told.take(left.pop(0), "nobody")
        else:
            told.stream.half_close()

    told.on_move = read_on
    told.take(0)
    told.version.answer()
    assert told.ids == ["0", *(f"{n}!" for n in range(1, 5000))]
    assert told.finished == [None]


@pytest.mark.parametrize("whole", [True, False], ids=["worker", "version"])
def test_a_stream_is_ended_after_what_runs(whole: bool) -> None:
    """Nothing more is taken; what runs is answered, then UNAVAILABLE; a stream without requests ends at once."""
    told = Told()
    told.take(0)
    end = told.roster.streams.end_all if whole else lambda: told.roster.streams.end_version(NAME)
    end()
    assert told.stream.is_full
    told.take(1)
    assert not told.finished
    told.version.answer()
    assert told.ids == ["0"]
    (error,) = told.finished
    assert isinstance(error, UnavailableError)
    told.check_nothing_left()
    idle = Told()
    idle.roster.streams.end_version(NAME)
    assert not idle.finished  # of no version yet
    idle.roster.streams.end_all()
    assert isinstance(idle.finished[0], UnavailableError)


def test_a_stream_that_comes_while_the_version_goes_has_one_answer() -> None:
    """Then it ends, so that the next one may lead elsewhere; once the version is back nothing ends."""
    told = Told()
    told.roster.streams.end_version(NAME)
    told.take(0)
    told.take(1)
    told.version.answer()
    assert told.ids == ["0"]
    assert isinstance(told.finished[0], UnavailableError)
    told.roster.streams.forget(NAME)
    assert told.roster.streams.why_end(NAME) is None


@settings(deadline=None)
@given(st.data())
def test_any_interleaving_answers_each_once_in_order(data: st.DataObject) -> None:
    """Requests, answers, failures in any order, then an end: ids are those of the requests, in order."""
    told = Told()
    asked, wrong = 0, set[int]()
    for _ in range(data.draw(st.integers(0, 40))):
        what = data.draw(st.sampled_from(["take", "wrong", "answer", "fail"]))
        if what == "take":
            told.take(asked)
            asked += 1
        elif what == "wrong":
            told.take(asked, "nobody")
            wrong.add(asked)
            asked += 1
        elif told.version.waiting:
            index = data.draw(st.integers(0, len(told.version.waiting) - 1))
            number = int(told.version.waiting[index][0].feeds["x"][0, 0])
            if what == "fail":
                wrong.add(number)
            told.version.answer(index, InvalidArgumentError("no") if what == "fail" else None)
    told.stream.half_close()
    while told.version.waiting:
        told.version.answer(data.draw(st.integers(0, len(told.version.waiting) - 1)))
    assert told.ids == [f"{n}{'!' * (n in wrong)}" for n in range(asked)]
    assert told.finished == [None]
    told.check_nothing_left()
