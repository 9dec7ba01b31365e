"""Several instances, sinks of whole batches, timeouts, priorities, and requests of unlike lengths."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import uvloop

from services.rpc.errors import DeadlineExceededError, InvalidArgumentError, UnavailableError
from services.worker.domain.assignment import PaddedInput, RunSettings, TrimmedOutput
from services.worker.domain.batch import Answer, Outputs, Waiting
from services.worker.domain.batch_group import Grouping
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.queue_rules import QueueRules
from services.worker.domain.ragged import Padding
from services.worker.domain.request_options import AnswerFacts, RequestOptions
from services.worker.domain.signature import Signature, spec_of
from services.worker.domain.waiting import RunShare
from services.worker.drivers.batcher import Batcher
from tests.unit.worker.drivers.scripted import (
    SIGNATURE,
    Meter,
    ScriptedSession,
    asked,
    gathered,
    hold,
    model,
    queue_of,
    running,
    submit,
)


async def test_no_instance_idles_while_rows_wait() -> None:
    """While one session computes, the next request goes to the other at once."""
    one, other = ScriptedSession(), ScriptedSession()
    async with running(model(other, one)) as made:  # the last is asked first
        await hold(one, made)
        (second,) = await gathered(made, asked(1))
        await other.has_started()
        assert (await second)["y"].tolist() == [2]
    assert (one.batches, other.batches) == ([[100]], [[1]])


async def test_instances_may_share_a_session() -> None:
    """Two runs at once of one session, in threads of their own."""
    session = ScriptedSession()
    async with running(model(session, session)) as made:
        first = await hold(session, made)
        (second,) = await gathered(made, asked(1))
        await session.has_started()
        session.go.set()
        await asyncio.gather(first, second)
    assert len(session.threads) == 2


class CpuSession(ScriptedSession):
    """Tells where it runs."""

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Note the CPUs of the thread."""
        self.batches.append(sorted(os.sched_getaffinity(0)))
        return {"y": feeds["x"], "z": feeds["x"]}


async def test_an_instance_computes_on_its_cpus() -> None:
    """Its thread is bound to them; the event loop's is not."""
    session, before = CpuSession(), os.sched_getaffinity(0)
    cpu = max(before)
    async with running(model(session, steady=False, cpus=[(cpu,)])) as made:
        await submit(made, asked(1))
    assert session.batches == [[cpu]]
    assert os.sched_getaffinity(0) == before


class Sink:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, Any]] = []

    def answered(self, batch: Sequence[Waiting], outputs: Outputs, run: RunShare) -> None:
        """A whole batch."""
        callers = [waiting.caller for waiting in batch]
        self.heard.append((callers, outputs["y"].tolist()))

    def ended(self, waiting: Waiting, answer: Answer) -> None:
        """One request."""
        self.heard.append((waiting.caller, type(answer)))


def enter(made: Batcher, sink: Sink, *xs: float, deadline: float | None = None) -> list[Waiting]:
    """Requests for a sink, as a front queues them that has seen one like them."""
    terms = Grouping(SIGNATURE, None, batched=True).terms(asked(0))
    return [
        made.enter(Waiting(terms, asked(x).feeds, time.monotonic(), deadline, None, sink, x))
        for x in xs
    ]


async def test_a_sink_is_told_of_a_whole_batch() -> None:
    """One call with all rows below each other; whoever has gone has no caller any more."""
    session, sink = ScriptedSession(), Sink()
    async with running(model(session)) as made:
        first = await hold(session, made)
        waiting = enter(made, sink, 1, 2, 3)
        made.leave(waiting[1])
        session.go.set()
        await first
        await submit(made, asked(9))
    assert sink.heard == [([1, 3], [2, 6])]


async def test_a_sink_is_told_of_each_where_a_batch_has_others() -> None:
    """Callers of both kinds share a run."""
    session, sink = ScriptedSession(), Sink()
    async with running(model(session)) as made:
        await hold(session, made)
        enter(made, sink, 1)
        (other,) = await gathered(made, asked(2))
        session.go.set()
        assert (await other)["y"].tolist() == [4]
    assert session.batches == [[100], [1, 2]]
    assert sink.heard == [(1, dict)]


async def test_a_sink_is_told_of_the_guilty_alone() -> None:
    """After the batch failed each has its own answer."""
    session, sink = ScriptedSession(), Sink()
    async with running(model(session)) as made:
        await hold(session, made)
        enter(made, sink, 1, -2, 3)
        session.go.set()
        await submit(made, asked(9))
    assert sink.heard == [(1, dict), (-2, InvalidArgumentError), (3, dict)]


async def test_a_refused_request_is_not_computed_twice() -> None:
    """Alone it needs no second try to know who is guilty."""
    session, sink = ScriptedSession(), Sink()
    async with running(model(session)) as made:
        enter(made, sink, -2)
        await submit(made, asked(9))
    assert session.batches in ([[-2], [9]], [[-2, 9], [-2], [9]])
    assert sink.heard == [(-2, InvalidArgumentError)]


async def test_a_sink_is_told_of_the_late_and_of_the_end() -> None:
    """Once each."""
    session, sink = ScriptedSession(), Sink()
    async with running(model(session)) as made:
        await hold(session, made)
        enter(made, sink, 1, deadline=time.monotonic())
        session.go.set()
        await submit(made, asked(9))
        await hold(session, made)
        enter(made, sink, 2)
    assert sink.heard == [(1, DeadlineExceededError), (2, UnavailableError)]


async def test_a_request_that_waits_too_long_is_told_while_all_are_busy() -> None:
    """Its own timeout ends it, though no instance is free."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        await hold(session, made)
        with pytest.raises(DeadlineExceededError, match="it waited 0"):
            await submit(made, asked(1, options=RequestOptions(timeout=0.01)))
    assert session.batches == [[100]]


async def test_a_timeout_of_the_version_holds_for_all() -> None:
    """Without a word of the request; what is computed in time is not touched."""
    session = ScriptedSession()
    async with running(model(session), rules=QueueRules(timeout=2.0)) as made:
        await submit(made, asked(5))
        await hold(session, made)
        with pytest.raises(DeadlineExceededError):
            await submit(made, asked(1))


async def test_priorities_go_first() -> None:
    """Of what has gathered."""
    session = ScriptedSession()
    async with running(model(session, batched=False), rules=QueueRules(priority_levels=2)) as made:
        await hold(session, made)
        tasks = await gathered(
            made, asked(1), asked(2, options=RequestOptions(priority=1)), asked(3)
        )
        session.go.set()
        await asyncio.gather(*tasks)
    assert session.batches == [[100], [2], [1], [3]]


async def test_tenants_take_turns() -> None:
    """One that comes after a flood of another is in the next batch."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        await hold(session, made)
        tasks = await gathered(
            made, *(asked(x, tenant="many") for x in range(6)), asked(50, tenant="one")
        )
        session.go.set()
        await asyncio.gather(*tasks)
    assert 50 in session.batches[1]


async def test_facts_are_known_when_the_answer_comes() -> None:
    """How long it waited, was computed, and with how many rows."""
    session, facts = ScriptedSession(), AnswerFacts()
    async with running(model(session)) as made:
        await hold(session, made)
        request = InferRequest({"x": np.ones(1, np.float32)}, ("y",), facts=facts)
        tasks = await gathered(made, request, asked(2, 3))
        session.go.set()
        await asyncio.gather(*tasks)
    assert facts.batch_rows == 3
    assert facts.queue_ns > 0
    assert facts.compute_ns > 0


TEXTS = Signature(
    (spec_of("ids", "INT64", (-1, -1)), spec_of("mask", "INT64", (-1, -1))),
    (spec_of("each", "INT64", (-1, -1)), spec_of("sum", "INT64", (-1,))),
)
PADDED = RunSettings(
    padded_inputs=(PaddedInput("ids", 1, pad_value=9), PaddedInput("mask", 1, mask=True)),
    trimmed_outputs=(TrimmedOutput("each", 1, "ids", 1),),
)


class TextSession:
    """Doubles tokens and sums those that the mask shows; refuses a mask of another length, and token 13."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Compute."""
        ids, mask = feeds["ids"], feeds["mask"]
        self.shapes.append(ids.shape)
        if ids.shape != mask.shape or (ids == 13).any():
            raise InvalidArgumentError("refused")
        answers = {"each": 2 * ids, "sum": (ids * mask).sum(axis=1)}
        return {name: answers[name] for name in outputs}


def text(*tokens: int, mask: int | None = None) -> InferRequest:
    ids = np.array([tokens], np.int64)
    return InferRequest(
        {"ids": ids, "mask": np.ones((1, len(tokens) if mask is None else mask), np.int64)},
        ("each", "sum"),
    )


def texts(session: TextSession, **how: Any) -> Any:
    padding = Padding.of(TEXTS, PADDED)
    return model(session, signature=TEXTS, padding=padding, steady=False, **how)  # type: ignore[arg-type] # a session of texts


async def answers_of(made: Batcher, *requests: InferRequest) -> list[Any]:
    """All at once."""
    tasks = [asyncio.create_task(submit(made, request)) for request in requests]
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_unlike_lengths_share_a_run_and_get_their_own_back() -> None:
    """Near lengths together; padding is counted."""
    session, meter = TextSession(), Meter()
    async with running(texts(session), meter) as made:
        one, long, other = await answers_of(
            made, text(1, 2, 3, 4, 5), text(*range(20, 40)), text(1, 2, 3, 4)
        )
    assert session.shapes == [(2, 5), (1, 20)]
    assert one["each"].tolist() == [[2, 4, 6, 8, 10]]
    assert other["each"].tolist() == [[2, 4, 6, 8]]
    assert (one["sum"][0], other["sum"][0], long["sum"][0]) == (15, 10, sum(range(20, 40)))
    assert [(run.cells, run.padded_cells) for run in meter.runs] == [(20, 2), (40, 0)]


async def test_a_mask_that_is_too_short_is_refused_among_others_too() -> None:
    """What the model refuses alone it refuses here: padding must not mend it."""
    session = TextSession()
    async with running(texts(session)) as made:
        bad, good = await answers_of(made, text(1, 2, 3, 4, mask=3), text(1, 2, 3, 4, 5))
    assert isinstance(bad, InvalidArgumentError)
    assert good["sum"][0] == 15


async def test_the_guilty_of_unlike_lengths_fails_alone() -> None:
    """The others are computed by themselves, without padding."""
    session = TextSession()
    async with running(texts(session)) as made:
        good, bad, other = await answers_of(
            made, text(1, 2, 3, 4, 5), text(13, 1, 1, 1), text(7, 7, 7, 7)
        )
    assert isinstance(bad, InvalidArgumentError)
    assert (good["sum"][0], other["sum"][0]) == (15, 28)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_full_batch_ends_its_window(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """While one instance computes, a request waits for company; a full batch of it goes to the other at once."""

    async def scenario() -> None:
        one, other = ScriptedSession(), ScriptedSession()
        async with running(model(other, one, steady=False), max_delay=60.0) as made:
            await hold(one, made)
            tasks = await gathered(made, asked(1))
            for _ in range(5):
                await asyncio.sleep(0)  # its window opens
            assert other.batches == []
            tasks += await gathered(made, asked(2), asked(3, 4))
            async with asyncio.timeout(30):
                await asyncio.gather(*tasks)
            assert other.batches == [[1, 2, 3, 4]]

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_timeouts_below_a_millisecond(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """Several at once, of which each ends once; uvloop's handles of such short delays can't say when they are due."""

    async def scenario() -> None:
        session = ScriptedSession()
        async with running(model(session)) as made:
            await hold(session, made)
            waits = (1e-4, 1e-6, 2e-4, 0.01, 1e-5)
            tasks = await gathered(
                made, *(asked(1, options=RequestOptions(timeout=wait)) for wait in waits)
            )
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(end) for end in ends] == [DeadlineExceededError] * 5
        assert session.batches == [[100]]

    run(scenario())


async def test_a_queue_knows_its_instances() -> None:
    """Two sessions halve what a request will wait."""
    session = ScriptedSession()
    assert queue_of(model(session, session)).limits.instances == 2
