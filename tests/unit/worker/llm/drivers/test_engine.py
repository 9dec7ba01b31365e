"""The engine as its callers see it, on a scripted runner."""

import asyncio
import threading
import time
from dataclasses import dataclass

import pytest

from services.rpc.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    Kind,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import FinishReason
from services.worker.llm.domain.step import Array, StepInput
from services.worker.llm.drivers import engine as engine_module
from services.worker.llm.drivers.engine import Engine
from tests.unit.worker.llm.drivers.engine_run import PATIENCE, Caller, Meter, running
from tests.unit.worker.llm.scripted_runner import (
    ScriptedRunner,
    capacity,
    continued,
    ending,
    scripted_model,
    text_of,
)
from tests.unit.worker.llm.stepping import asked


def filled(engine: Engine, tenants: str) -> list[Caller]:
    """Requests of these tenants, one after the other, until one is refused."""
    return [Caller(engine).submit(asked(b"more", 2, tenant=tenant)) for tenant in tenants]


async def held(runner: ScriptedRunner) -> threading.Event:
    """A step is being computed; it ends when this is set."""
    assert runner.hold is not None
    assert await asyncio.to_thread(runner.started.wait, PATIENCE)
    return runner.hold


async def test_a_text_is_continued() -> None:
    """All pieces together are what the model says, and the last one has reason and sums."""
    async with running(ScriptedRunner(capacity())) as (engine, meter):
        arrived = time.monotonic()
        caller = Caller(engine).submit(asked(b"hello world", 20, arrived=arrived))
        summary = (await caller.ended()).summary
    assert caller.text() == text_of(continued(b"hello world", 20))
    assert caller.updates[-1].pieces[0].finish_reason is FinishReason.LENGTH
    assert summary is not None
    assert (summary.prompt_tokens, summary.completion_tokens) == (11, 20)
    assert summary.queue_seconds is not None
    assert summary.first_token_seconds is not None
    assert summary.per_token_seconds is not None
    assert 0 <= summary.queue_seconds <= summary.first_token_seconds <= summary.total_seconds
    assert sum(facts.generated_tokens for facts in meter.steps) == 20
    assert sum(facts.prompt_tokens for facts in meter.steps) == 11
    (facts,) = meter.requests
    assert (facts.summary, facts.finish_reasons) == (summary, (FinishReason.LENGTH,))


async def test_a_text_ends_where_the_model_ends_it() -> None:
    """The token that ends it counts, and is not told."""
    script = ending(11)
    async with running(ScriptedRunner(capacity(), script)) as (engine, _):
        caller = Caller(engine).submit(asked(b"abc", None))
        last = await caller.ended()
    assert caller.tokens() == continued(b"abc", 1000, script)
    assert last.pieces[0].finish_reason is FinishReason.STOP
    assert last.summary is not None
    assert last.summary.completion_tokens == len(caller.tokens()) + 1


async def test_without_max_tokens_the_context_ends_a_text() -> None:
    """Its last token fills the context."""
    async with running(ScriptedRunner(capacity()), EngineSettings(context_length=50)) as (
        engine,
        _,
    ):
        caller = Caller(engine).submit(asked(b"abcdefghij", None))
        await caller.ended()
    assert len(caller.tokens()) == 40


async def test_several_texts_of_one_request_end_together() -> None:
    """One summary, after the last piece of the last text."""
    async with running(ScriptedRunner(capacity())) as (engine, meter):
        caller = Caller(engine).submit(asked(b"hello", 6, n=3))
        last = await caller.ended()
    assert [caller.text(index) for index in range(3)] == [text_of(continued(b"hello", 6))] * 3
    assert last.summary is not None
    assert last.summary.completion_tokens == 18
    assert [update.summary for update in caller.updates[:-1]] == [None] * 17
    assert meter.requests[0].finish_reasons == (FinishReason.LENGTH,) * 3


async def test_who_goes_away_frees_everything_within_one_step() -> None:
    """1. A step is being computed; 2. the caller goes; 3. after that step nothing is held and nobody was told."""
    runner = ScriptedRunner(capacity(), hold=threading.Event())
    async with running(runner) as (engine, meter):
        caller = Caller(engine).submit(asked(b"hello", 100, n=2))
        step = await held(runner)
        caller.abort()
        step.set()
        await meter.have_ended(1)
        assert (runner.steps, caller.updates, engine.load().used_blocks) == (1, [], 0)
        assert [facts.error for facts in meter.requests] == [Kind.CANCELLED]


async def test_aborting_what_has_ended_or_never_was_does_nothing() -> None:
    """Twice neither."""
    async with running(ScriptedRunner(capacity())) as (engine, meter):
        caller = Caller(engine).submit(asked(b"hello", 2))
        await caller.ended()
        caller.abort()
        caller.abort()
        await Caller(engine).submit(asked(b"again", 2)).ended()
    assert [facts.error for facts in meter.requests] == [None, None]


async def test_a_deadline_ends_what_waits_and_what_runs() -> None:
    """Both with DEADLINE_EXCEEDED, and what they held is free within one step."""
    runner = ScriptedRunner(capacity(), hold=threading.Event())
    async with running(runner, EngineSettings(max_running_requests=1)) as (engine, meter):
        soon = time.monotonic() + 1.0  # the first step has begun by then
        runs = Caller(engine).submit(asked(b"one", 100, deadline=soon, arrived=soon - 1.0))
        step = await held(runner)
        waits = Caller(engine).submit(asked(b"two", 100, deadline=soon, arrived=soon - 1.0))
        await asyncio.sleep(max(0.0, soon - time.monotonic()) + 0.001)
        step.set()
        errors = [(await caller.ended()).error for caller in (runs, waits)]
        assert engine.load().used_blocks == 0
    assert all(isinstance(error, DeadlineExceededError) for error in errors)
    assert "in the queue" in str(errors[1])
    assert waits.updates[-1].summary is not None
    assert waits.updates[-1].summary.queue_seconds is None
    assert [facts.error for facts in meter.requests] == [Kind.DEADLINE_EXCEEDED] * 2


async def test_a_failed_step_ends_its_requests_and_no_others() -> None:
    """Who waits is computed by the next step, rightly."""
    runner = ScriptedRunner(capacity(), fail_steps={2})
    async with running(runner, EngineSettings(max_running_requests=1)) as (engine, meter):
        fails = Caller(engine).submit(asked(b"one", 4))
        works = Caller(engine).submit(asked(b"two", 4))
        assert isinstance((await fails.ended()).error, InternalError)
        assert (await works.ended()).error is None
    assert fails.tokens() == continued(b"one", 1)
    assert works.tokens() == continued(b"two", 4)
    assert [facts.failed for facts in meter.steps] == [False, True, False, False, False, False]


async def test_an_engine_whose_steps_all_fail_is_stuck_until_one_works() -> None:
    """Three in a row; then whoever asks whether it makes progress hears that it doesn't."""
    runner = ScriptedRunner(capacity(), fail_steps={1, 2, 3})
    async with running(runner) as (engine, _):
        for _ in range(3):
            assert engine.stuck_for(60) is None
            await Caller(engine).submit(asked(b"one", 1)).ended()
        assert engine.stuck_for(60) is not None
        await Caller(engine).submit(asked(b"one", 1)).ended()
        assert engine.stuck_for(60) is None


async def test_a_step_that_never_ends_is_stuck_and_an_idle_engine_is_not() -> None:
    """Whatever the patience."""
    runner = ScriptedRunner(capacity(), hold=threading.Event())
    async with running(runner) as (engine, _):
        assert engine.stuck_for(0) is None
        caller = Caller(engine).submit(asked(b"one", 1))
        step = await held(runner)
        assert engine.stuck_for(60) is None
        assert engine.stuck_for(0) is not None
        step.set()
        await caller.ended()
        assert engine.stuck_for(0) is None


async def test_a_reader_who_does_not_read_holds_up_nobody() -> None:
    """The event loop is busy for as long as the engine takes to end another's text."""
    runner = ScriptedRunner(capacity())
    async with running(runner) as (engine, _):
        caller = Caller(engine).submit(asked(b"one", 50))
        deadline = time.monotonic() + PATIENCE
        while runner.steps < 50:  # on purpose without giving way to the loop
            assert time.monotonic() < deadline
            time.sleep(0.001)  # noqa: ASYNC251 - the loop is held up
        await caller.ended()
    assert caller.tokens() == continued(b"one", 50)


async def test_what_can_never_fit_is_refused_with_the_sizes() -> None:
    """Context, cache, quota and the version's own limit: each says the numbers."""
    bounds = EngineSettings(context_length=100, max_output_tokens=60, max_tenant_share=0.25)
    async with running(ScriptedRunner(capacity(64, 4)), bounds) as (engine, _):
        with pytest.raises(InvalidArgumentError, match="90 tokens, and 20 more") as beyond:
            Caller(engine).submit(asked(b"x" * 90, 20))
        assert beyond.value.reason == "CONTEXT_EXCEEDED"
        assert beyond.value.metadata == {
            "prompt_tokens": "90",
            "max_tokens": "20",
            "context_length": "100",
        }
        with pytest.raises(InvalidArgumentError, match="17 blocks of 4 tokens are needed") as large:
            Caller(engine).submit(asked(b"x" * 60, 6))
        assert large.value.reason == "CACHE_EXCEEDED"
        assert large.value.metadata["blocks_allowed"] == "16"
        assert large.value.metadata["blocks"] == "64"
        with pytest.raises(InvalidArgumentError, match="allowed together: 60"):
            Caller(engine).submit(asked(b"x", 16, n=4))
        with pytest.raises(InvalidArgumentError, match="at least one more"):
            Caller(engine).submit(asked(b"x" * 100, None))
        with pytest.raises(InvalidArgumentError, match="prompt: is empty"):
            Caller(engine).submit(asked(b"", 1))
        with pytest.raises(InvalidArgumentError, match="256 is no token's id"):
            Caller(engine).submit(asked([256], 1))
        just = Caller(engine).submit(asked(b"x" * 60, 5))
        await just.ended()
        assert just.tokens() == continued(b"x" * 60, 5)


async def test_a_full_queue_refuses_with_a_hint() -> None:
    """Others' requests find room as long as one tenant alone fills it."""
    runner = ScriptedRunner(capacity(), hold=threading.Event())
    bounds = EngineSettings(max_running_requests=1, max_queue_requests=10)
    async with running(runner, bounds) as (engine, _):
        first = Caller(engine).submit(asked(b"first", 2, tenant="1"))
        step = await held(runner)
        own = filled(engine, "1111111")
        with pytest.raises(ResourceExhaustedError, match="project's part") as refused:
            filled(engine, "1")
        assert refused.value.retry_after
        others = filled(engine, "ab")
        with pytest.raises(ResourceExhaustedError, match="the queue is full: 10"):
            filled(engine, "c")
        assert engine.load().waiting == 10
        step.set()
        for caller in (first, *own, *others):
            await caller.ended()


async def test_an_engine_that_is_cancelled_ends_what_is_open_and_refuses_more() -> None:
    """All with UNAVAILABLE, before `run` returns; its thread has ended then."""
    runner = ScriptedRunner(capacity(), hold=threading.Event())
    engine = Engine(scripted_model(runner), EngineSettings(max_running_requests=1), Meter())
    task = asyncio.create_task(engine.run())
    callers = [Caller(engine).submit(asked(b"one", 90)) for _ in range(3)]
    step = await held(runner)
    task.cancel()
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError):
        Caller(engine).submit(asked(b"late", 1))
    step.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    for caller in callers:
        assert isinstance(caller.updates[-1].error, UnavailableError)
    assert not [thread for thread in threading.enumerate() if thread.name == "engine"]


async def test_an_engine_is_closed_although_a_step_never_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its callers are told, and nobody waits for the step for ever."""
    monkeypatch.setattr(engine_module, "_LAST_STEP_SECONDS", 0.01)
    runner = ScriptedRunner(capacity(), hold=threading.Event())
    engine = Engine(scripted_model(runner), EngineSettings(), Meter())
    task = asyncio.create_task(engine.run())
    caller = Caller(engine).submit(asked(b"one", 90))
    step = await held(runner)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance((await caller.ended()).error, UnavailableError)
    step.set()  # what the thread still has to tell is told to nobody
    for thread in threading.enumerate():
        if thread.name == "engine":
            thread.join(PATIENCE)
    await asyncio.sleep(0)
    assert len(caller.updates) == 1


async def test_a_fault_of_our_own_ends_the_engine_loudly() -> None:
    """`run` raises it, and nobody waits for ever."""

    def break_it(step: StepInput) -> None:
        raise RuntimeError("a fault")

    runner = ScriptedRunner(capacity(), on_step=break_it)
    engine = Engine(scripted_model(runner), EngineSettings(), Meter())
    task = asyncio.create_task(engine.run())
    caller = Caller(engine).submit(asked(b"one", 90))
    with pytest.raises(RuntimeError, match="a fault"):
        await asyncio.wait_for(task, PATIENCE)
    assert isinstance((await caller.ended()).error, UnavailableError)


@dataclass(slots=True, eq=False)
class Broken(ScriptedRunner):
    """Its very first logits are not numbers."""

    def step(self, step: StepInput) -> Array:
        logits = ScriptedRunner.step(self, step)
        if self.steps == 1:
            logits[0] = float("nan")
        return logits


async def test_logits_that_are_not_numbers_end_that_request_only() -> None:
    """The other one goes on."""
    async with running(Broken(capacity())) as (engine, _):
        callers = [Caller(engine).submit(asked(b"one", 3, n=2)), Caller(engine).submit(asked(b"2"))]
        errors = [(await caller.ended()).error for caller in callers]
    assert isinstance(errors[0], InternalError)
    assert (errors[0].reason, errors[1]) == ("NOT_FINITE", None)


async def test_load_tells_what_is_held() -> None:
    """Blocks in use, kept and their unwritten places, as of the last step."""
    async with running(ScriptedRunner(capacity(16, 4))) as (engine, meter):
        caller = Caller(engine).submit(asked(b"abcde", 50))
        await caller.told()
        load, written = engine.load(), 5 + len(caller.tokens()) - 1
        assert (load.blocks, load.running, load.used_blocks) == (16, 1, -(-written // 4))
        assert load.kv_usage == load.used_blocks / 16
        assert load.waste == pytest.approx(1 - written / (load.used_blocks * 4))
        await meter.have_ended(1)
        load = engine.load()
        assert (load.running, load.used_blocks, load.cached_blocks) == (0, 0, (5 + 50 - 1) // 4)
