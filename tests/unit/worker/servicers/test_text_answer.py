"""What becomes of an engine's updates until a caller takes them, and of the engine's requests when it doesn't."""

import asyncio
from dataclasses import dataclass, field

import pytest

from services.rpc.errors import InferplaneError, InternalError, ResourceExhaustedError
from services.rpc.names import VersionName
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.counters import Outcome
from services.worker.domain.signature import Signature
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.served_text import ServedText
from services.worker.drivers.traffic import Traffic
from services.worker.llm.domain.generation import (
    FinishReason,
    GenerationRequest,
    Piece,
    RequestId,
    Summary,
    Update,
)
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.ports.engine import Deliver, EngineLoad
from services.worker.servicers.text_answer import ReaderBounds, TextAnswer
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity, scripted_model

SUMMARY = Summary(prompt_tokens=3, completion_tokens=2, cached_prompt_tokens=1, total_seconds=1.0)


@dataclass
class ToldEngine:
    """A `TextEngine` that says what a test says; refuses the request of a number."""

    delivers: list[Deliver] = field(default_factory=list)
    aborted: list[RequestId] = field(default_factory=list)
    refuses: int = -1

    def submit(self, request: GenerationRequest, deliver: Deliver) -> RequestId:
        if len(self.delivers) == self.refuses:
            raise ResourceExhaustedError("full")
        self.delivers.append(deliver)
        return RequestId(len(self.delivers) - 1)

    def abort(self, request: RequestId) -> None:
        self.aborted.append(request)

    def load(self) -> EngineLoad:
        raise NotImplementedError

    def stuck_for(self, patience: float) -> float | None:
        return None

    def tell(self, *pieces: Piece, request: int = 0, ends: bool = False) -> None:
        self.delivers[request](Update(pieces, SUMMARY if ends else None))


def served(engine: ToldEngine) -> ServedText:
    model = scripted_model(ScriptedRunner(capacity()))
    return ServedText(
        spec=VersionSpec(
            name=VersionName("m", "1"), digest="", files=(), signature=Signature((), ())
        ),
        engine=engine,
        tokenizer=model.tokenizer,
        template=None,
        shape=model.shape,
        context_length=64,
        max_output_tokens=64,
        statistics=VersionStatistics(),
        traffic=Traffic(),
    )


def request(n: int = 1) -> GenerationRequest:
    return GenerationRequest(prompt=(1,), sampling=SamplingSettings(n=n))


def outcomes(of: ServedText) -> dict[Outcome, int]:
    return {o: span.count for o, span in of.statistics.outcomes.items() if span.count}


async def test_what_comes_while_the_caller_is_busy_is_joined() -> None:
    """One piece for each index, nothing lost and nothing out of order."""
    engine = ToldEngine()
    with TextAnswer(served(engine), ReaderBounds()) as answer:
        answer.begin([request(n=2)])
        engine.tell(Piece(index=0, text="a", token_ids=(1,)))
        assert (await answer.next()).pieces == (Piece(index=0, text="a", token_ids=(1,)),)
        engine.tell(Piece(index=0, text="b", token_ids=(2,)))
        engine.tell(Piece(index=1, text="x"))
        last = Piece(index=0, text="c", token_ids=(3,), finish_reason=FinishReason.STOP)
        engine.tell(last)
        update = await answer.next()
        assert update.summary is None
        joined = Piece(index=0, text="bc", token_ids=(2, 3), finish_reason=FinishReason.STOP)
        assert update.pieces == (joined, Piece(index=1, text="x"))
        engine.tell(ends=True)
        assert (await answer.next()).summary == SUMMARY
    assert not engine.aborted


async def test_several_requests_are_one_answer() -> None:
    """Their indices follow each other; the last one's end is the end, with all counts."""
    engine = ToldEngine()
    with TextAnswer(served(engine), ReaderBounds()) as answer:
        answer.begin([request(n=2), request(n=2)])
        engine.tell(Piece(index=1, text="b"), request=1)
        engine.tell(Piece(index=0, text="a"), request=0, ends=True)
        update = await answer.next()
        assert [(piece.index, piece.text) for piece in update.pieces] == [(3, "b"), (0, "a")]
        assert update.summary is None
        engine.tell(request=1, ends=True)
        summary = (await answer.next()).summary
    assert summary is not None
    assert (summary.prompt_tokens, summary.completion_tokens) == (6, 4)
    assert (summary.cached_prompt_tokens, summary.total_seconds) == (2, 1.0)


async def test_what_was_written_before_an_error_is_told_first() -> None:
    """Then the error, and the other requests of the call are aborted."""
    engine, of = ToldEngine(), None
    of = served(engine)
    with pytest.raises(InternalError), TextAnswer(of, ReaderBounds()) as answer:  # noqa: PT012
        answer.begin([request(), request()])
        engine.tell(Piece(index=0, text="a"))
        engine.delivers[0](Update(error=InternalError("broken")))
        assert (await answer.next()).pieces[0].text == "a"
        engine.tell(Piece(index=0, text="late"), request=1)
        await answer.next()
    assert engine.aborted == [1]
    assert outcomes(of) == {Outcome.FAILED: 1}
    assert not of.traffic.in_flight


async def test_a_request_that_is_refused_takes_the_others_with_it() -> None:
    """All or none."""
    engine = ToldEngine(refuses=1)
    of = served(engine)
    with pytest.raises(ResourceExhaustedError), TextAnswer(of, ReaderBounds()) as answer:
        answer.begin([request(), request()])
    assert engine.aborted == [0]
    assert outcomes(of) == {Outcome.REJECTED: 1}


async def test_a_caller_that_goes_aborts() -> None:
    """Also while it waits; the call is counted as cancelled."""
    engine = ToldEngine()
    of = served(engine)

    async def call() -> None:
        with TextAnswer(of, ReaderBounds()) as answer:
            answer.begin([request()])
            await answer.next()

    task = asyncio.create_task(call())
    await asyncio.sleep(0)  # it begins
    assert engine.delivers
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert engine.aborted == [0]
    assert outcomes(of) == {Outcome.CANCELLED: 1}
    engine.tell(Piece(index=0, text="late"))  # does nothing


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        pytest.param(ReaderBounds(seconds=0.0), "a", id="too long"),
        pytest.param(ReaderBounds(size=100), "a" * 101, id="too much"),
    ],
)
async def test_a_reader_that_stalls_is_taken_for_gone(bounds: ReaderBounds, text: str) -> None:
    """Its request is aborted at once, though nobody waits for the next update; it is told when it comes back."""
    engine = ToldEngine()
    of = served(engine)
    told: InferplaneError | None = None
    with TextAnswer(of, bounds) as answer:
        answer.begin([request()])
        engine.tell(Piece(index=0, text="first"))
        await answer.next()
        assert not engine.aborted
        engine.tell(Piece(index=0, text=text))
        assert engine.aborted == [0]
        with pytest.raises(ResourceExhaustedError) as caught:
            await answer.next()
        told = caught.value
    assert told.reason == "ANSWERS_NOT_READ"


async def test_all_of_it_is_one_piece_per_index() -> None:
    """For callers that wait for the whole."""
    engine = ToldEngine()
    with TextAnswer(served(engine), ReaderBounds()) as answer:
        answer.begin([request(n=2)])
        whole = asyncio.create_task(answer.whole())
        for text in "abc":
            await asyncio.sleep(0)
            engine.tell(Piece(index=0, text=text), Piece(index=1, text=text.upper()))
        engine.tell(ends=True)
        update = await whole
    assert [(piece.index, piece.text) for piece in update.pieces] == [(0, "abc"), (1, "ABC")]
    assert update.summary == SUMMARY
