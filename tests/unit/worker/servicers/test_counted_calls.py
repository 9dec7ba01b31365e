"""Calls on their way in and out: each that is admitted has one row and one end of its reservation, however it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from services.rpc.errors import (
    CancelledError,
    InternalError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.domain.caller import Caller
from services.worker.domain.usage_row import Outcome
from services.worker.drivers.tab import CallMark
from services.worker.llm.domain.generation import FinishReason, GenerationRequest, Piece
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.servicers.text_answer import ReaderBounds, TextAnswer
from tests.unit.worker.servicers.counting import Counting
from tests.unit.worker.servicers.fast_desk import Asking, Desk, all_ended, desk, request
from tests.unit.worker.servicers.test_text_answer import ToldEngine, served

MARK = CallMark(Caller("p", "k", "e"), bytes(16))


@asynccontextmanager
async def counted(counting: Counting) -> AsyncIterator[Desk]:
    """ModelInfer that counts."""
    async with desk() as made:
        made.shelf.served = replace(made.shelf.served, usage=counting.usage())
        yield made


class Headed(Asking):
    """A call whose answer tells of budgets."""

    def reply(self, message: bytes, initial: object = (), trailing: object = ()) -> None:
        self.initial = initial
        self._tell(message)


async def called(made: Desk, count: int, k: int = 0) -> list[Headed]:
    """So many calls, one after the other, so that from the third on their form is known."""
    calls = []
    for _ in range(count):
        calls.append(Headed())
        made.inference.begin(calls[-1], request(k=k).SerializeToString())
        await all_ended(calls)
    return calls


async def test_calls_of_known_and_unknown_forms() -> None:
    """Each has a row and headers of its budget."""
    counting = Counting()
    async with counted(counting) as made:
        calls = await called(made, 5)
    counting.check()
    assert counting.rows.outcomes == [Outcome.OK] * 5
    assert {call.initial for call in calls} == {((b"x-ratelimit-remaining-tokens", b"7"),)}
    assert [one.need.rows for one in counting.allowance.sets] == [1] * 5
    assert [entry.opened.rows for entry in counting.rows.rows] == [1] * 5


async def test_errors_of_the_model_are_counted() -> None:
    """As failed, of known forms too."""
    counting = Counting()
    async with counted(counting) as made:
        await called(made, 4, k=-1)
    counting.check()
    assert counting.rows.outcomes == [Outcome.FAILED] * 4


class Broken(Headed):
    """A call whose first answer can't be written."""

    def reply(self, message: bytes, initial: object = (), trailing: object = ()) -> None:
        self.on_gone = None
        raise RuntimeError("this answer can't be written")


async def test_a_failure_amid_a_batch() -> None:
    """What was answered before it has ended well and the others have failed; nothing stays open."""
    counting = Counting()
    async with counted(counting) as made:
        await called(made, 3)
        first, broken, after = Headed(), Broken(), Headed()
        for call in (first, broken, after):
            made.inference.begin(call, request().SerializeToString())
        await all_ended([first, after])
        made.check_idle()
    counting.check()
    assert isinstance(first.told[0], bytes)
    assert isinstance(after.told[0], InternalError)
    assert sorted(counting.rows.outcomes[3:]) == [Outcome.OK, Outcome.OK, Outcome.FAILED]


@pytest.mark.parametrize("before", [0, 3], ids=["unknown form", "known form"])
async def test_a_refusal_has_no_row(before: int) -> None:
    """By the budget, by a journal that is full, by a queue that is full: nothing is held."""
    counting = Counting()
    async with counted(counting) as made:
        await called(made, before)
        counting.allowance.refusal = ResourceExhaustedError("budget", reason="BUDGET_EXHAUSTED")
        (refused,) = await called(made, 1)
        counting.allowance.refusal = None
        counting.rows.refusal = UnavailableError("full", reason="USAGE_OUTBOX_FULL")
        (full,) = await called(made, 1)
        counting.rows.refusal = None
        many = [Headed() for _ in range(70)]  # the queue has room for 64 rows
        for call in many:
            made.inference.begin(call, request().SerializeToString())
        await all_ended(many)
    counting.check()
    assert isinstance(refused.told[0], ResourceExhaustedError)
    assert isinstance(full.told[0], UnavailableError)
    queued = [call for call in many if isinstance(call.told[0], bytes)]
    assert len(queued) < 70
    assert counting.rows.outcomes == [Outcome.OK] * (before + len(queued))


@pytest.mark.parametrize("before", [0, 3], ids=["unknown form", "known form"])
async def test_calls_that_wait_for_metering(before: int) -> None:
    """They go on when it has answered; one whose caller leaves before holds nothing."""
    counting = Counting()
    async with counted(counting) as made:
        await called(made, before)
        counting.allowance.gate = asyncio.Event()
        stays, leaves = Headed(), Headed()
        for call in (stays, leaves):
            made.inference.begin(call, request().SerializeToString())
        await asyncio.sleep(0)
        assert leaves.on_gone is not None
        leaves.on_gone(CancelledError("gone"))
        counting.allowance.gate.set()
        await all_ended([stays])
        await asyncio.sleep(0)
        made.check_idle()
    counting.check()
    assert isinstance(stays.told[0], bytes)
    assert leaves.told == []
    assert counting.rows.outcomes == [Outcome.OK] * (before + 1)


@pytest.mark.parametrize("before", [0, 3], ids=["unknown form", "known form"])
async def test_callers_that_go_are_counted(before: int) -> None:
    """As cancelled; what was set aside is settled."""
    counting = Counting()
    async with counted(counting) as made:
        await called(made, before)
        call = Headed()
        made.inference.begin(call, request().SerializeToString())
        assert call.on_gone is not None
        call.on_gone(CancelledError("gone"))
    counting.check()
    assert counting.rows.outcomes[before:] == [Outcome.CANCELLED]


def asked(n: int = 1) -> GenerationRequest:
    return GenerationRequest(prompt=(1, 2), sampling=SamplingSettings(n=n, max_tokens=50))


async def test_a_text_ends_where_its_budget_does() -> None:
    """With a reason of its own; all its texts end, and no token beyond is delivered or counted."""
    counting, engine = Counting(), ToldEngine()
    counting.allowance.most = 3
    of = replace(served(engine), usage=counting.usage())
    with TextAnswer(of, ReaderBounds()) as answer:
        await answer.admit([asked(n=2)], MARK)
        engine.tell(Piece(index=0, text="a", token_ids=(1,)))
        engine.tell(Piece(index=1, text="b", token_ids=(2,)))
        engine.tell(Piece(index=0, text="c", token_ids=(3,)))
        engine.tell(Piece(index=1, text="d", token_ids=(4,)))
        update = await answer.next()
        answer.deliver(update, 10)
    counting.check()
    assert {(p.index, p.text, p.finish_reason) for p in update.pieces} == {
        (0, "ac", FinishReason.BUDGET),
        (1, "b", FinishReason.BUDGET),
    }
    assert update.summary is not None
    assert update.summary.completion_tokens == 3
    assert engine.aborted == [0]
    (set_aside,) = counting.allowance.sets
    assert (set_aside.need.input_tokens, set_aside.need.output_tokens) == (2, 100)
    assert [used.output_tokens for used in set_aside.used] == [3]
    assert counting.rows.outcomes == [Outcome.OK]


async def test_only_what_was_delivered_is_counted() -> None:
    """Tokens that wait when the caller goes, or that no event has told of, are nobody's."""
    counting, engine = Counting(), ToldEngine()
    of = replace(served(engine), usage=counting.usage())
    with pytest.raises(asyncio.CancelledError), TextAnswer(of, ReaderBounds()) as answer:  # noqa: PT012
        await answer.admit([asked()], MARK)
        for token in range(3):
            engine.tell(Piece(index=0, text="a", token_ids=(token,)))
            answer.deliver(await answer.next(), 10 if token != 1 else 0)
        engine.tell(Piece(index=0, text="late", token_ids=(9,)))
        raise asyncio.CancelledError
    counting.check()
    (row,) = counting.rows.rows
    assert row.delivered == [(1, 10), (3, 20)]
    assert row.ended is not None
    assert (row.ended.outcome, row.ended.output_tokens) == (Outcome.CANCELLED, 3)
