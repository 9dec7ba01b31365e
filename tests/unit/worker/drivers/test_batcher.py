"""The asyncio driver of a queue, with a session that a test holds and lets go."""

import asyncio
import time
from typing import Any

import pytest

from services.rpc.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.drivers.batcher import Batcher
from tests.unit.worker.drivers.scripted import (
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


async def test_what_waits_while_the_session_is_busy_goes_together() -> None:
    """1 + 2 + 1 rows fill a batch, the fourth request follows; each gets its own rows and outputs."""
    session, meter = ScriptedSession(), Meter()
    async with running(model(session), meter) as made:
        first = await hold(session, made)
        tasks = await gathered(
            made, asked(1), asked(2, 3, outputs=("z",)), asked(4, outputs=("z",)), asked(5)
        )
        session.go.set()
        answers = [await task for task in (first, *tasks)]
    assert session.batches == [[100], [1, 2, 3, 4], [5]]
    assert session.outputs[1] == ("y", "z")
    assert {n: a.tolist() for n, a in answers[2].items()} == {"z": [-2, -3]}
    assert answers[1]["y"].tolist() == [2]
    assert (meter.rows, meter.waits) == ([1, 4, 1], 5)


async def test_only_the_guilty_of_a_batch_fails() -> None:
    """After the batch failed each is computed alone."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        await hold(session, made)
        tasks = await gathered(made, asked(1), asked(-1), asked(2))
        session.go.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[1], InvalidArgumentError)
    assert [a["y"].tolist() for a in answers if isinstance(a, dict)] == [[2], [4]]


async def test_a_batch_with_wrong_rows_is_not_split() -> None:
    """Outputs are counted before they are handed out; alone the requests are right."""
    session = ScriptedSession()
    session.rows_lost = True
    async with running(model(session)) as made:
        await hold(session, made)
        tasks = await gathered(made, asked(1), asked(2))
        session.go.set()
        answers = await asyncio.gather(*tasks)
    assert [a["y"].tolist() for a in answers] == [[2], [4]]


async def test_a_large_request_is_computed_in_parts() -> None:
    """Never more than max_rows at once, and its rows come back in order."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        answer = await submit(made, asked(*range(10)), None)
    assert session.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert answer["y"].tolist() == [2.0 * n for n in range(10)]


async def test_unbatched_requests_go_one_by_one_and_whole() -> None:
    """Without batching nothing is joined and nothing cut."""
    session = ScriptedSession()
    async with running(model(session, batched=False)) as made:
        await hold(session, made)
        tasks = await gathered(made, asked(*range(6)), asked(7))
        session.go.set()
        await asyncio.gather(*tasks)
    assert session.batches == [[100], list(range(6)), [7]]


async def test_the_late_are_told_and_not_computed() -> None:
    """A deadline that passes in the queue is DEADLINE_EXCEEDED."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        await hold(session, made)
        late = asyncio.create_task(submit(made, asked(1), asyncio.get_running_loop().time()))
        await asyncio.sleep(0)
        session.go.set()
        with pytest.raises(DeadlineExceededError):
            await late
    assert session.batches == [[100]]


async def test_the_cancelled_are_not_computed() -> None:
    """Who goes while waiting leaves the queue; who goes while computing is forgotten."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        first = await hold(session, made)
        (second,) = await gathered(made, asked(1))
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        session.go.set()
        assert (await submit(made, asked(3), None))["y"].tolist() == [6]
    assert session.batches == [[100], [3]]


async def test_a_full_queue_refuses_at_the_door() -> None:
    """Those inside are not harmed."""
    session = ScriptedSession()
    async with running(model(session), max_queued_rows=2) as made:
        await hold(session, made)
        tasks = await gathered(made, asked(1), asked(2))
        with pytest.raises(ResourceExhaustedError):
            await submit(made, asked(3), None)
        session.go.set()
        assert len(await asyncio.gather(*tasks)) == 2


async def test_no_memory_is_an_answer() -> None:
    """Memory that runs out fails the request, not the version."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        session.no_memory = True
        with pytest.raises(ResourceExhaustedError):
            await submit(made, asked(1), None)
        session.no_memory = False
        assert (await submit(made, asked(1), None))["y"].tolist() == [2]


async def test_a_stop_ends_everyone_once() -> None:
    """What waits and what computes is told UNAVAILABLE, and so is who comes later."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        first = await hold(session, made)
        (second,) = await gathered(made, asked(1))
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(a) for a in answers] == [UnavailableError, UnavailableError]
    with pytest.raises(UnavailableError):
        await submit(made, asked(1), None)


async def test_callbacks_are_told_once_and_then_the_batch_is_announced() -> None:
    """Answers of one batch, then one word that all have been given; who left hears nothing."""
    session = ScriptedSession()
    heard: list[Any] = []
    queue = queue_of(model(session))
    announced = asyncio.Event()

    def delivered() -> None:
        heard.append("delivered")
        announced.set()

    made = Batcher(queue, model(session), Meter(), delivered)
    for x in (1, 2, 3):
        waiting = made.admit(asked(x), None, lambda answer, x=x: heard.append((x, answer)))  # type: ignore[misc]
        if x == 2:
            made.leave(waiting)
    task = asyncio.create_task(made.run())
    await announced.wait()
    assert session.batches == [[1, 3]]
    assert [h if isinstance(h, str) else h[0] for h in heard] == [1, 3, "delivered"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_short_runs_are_computed_without_a_thread() -> None:
    """After enough of them in a row; what arrives together still goes together."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        for x in range(12):
            assert (await submit(made, asked(x), None))["y"].tolist() == [2 * x]
        answers = await asyncio.gather(*(submit(made, asked(x), None) for x in range(4)))
        assert [a["y"].tolist() for a in answers] == [[0], [2], [4], [6]]
    assert session.batches[12:] in ([[0, 1, 2, 3]], [[0], [1, 2, 3]])


async def test_a_large_request_whose_caller_goes_is_not_computed_on() -> None:
    """Of three parts only the one that had begun is computed."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        session.go.clear()
        large = asyncio.create_task(submit(made, asked(*range(12)), None))
        assert await asyncio.to_thread(session.started.acquire, timeout=30)
        large.cancel()
        await asyncio.gather(large, return_exceptions=True)
        session.go.set()
        assert (await submit(made, asked(50), None))["y"].tolist() == [100]
    assert session.batches == [[0, 1, 2, 3], [50]]


async def test_a_large_request_ends_at_its_deadline() -> None:
    """The parts that are left when it passes are not computed."""
    session = ScriptedSession()
    async with running(model(session)) as made:
        session.go.clear()
        deadline = time.monotonic() + 1.0
        large = asyncio.create_task(submit(made, asked(*range(12)), deadline))
        assert await asyncio.to_thread(session.started.acquire, timeout=30)
        await asyncio.sleep(deadline - time.monotonic() + 0.01)  # it has passed then
        session.go.set()
        with pytest.raises(DeadlineExceededError, match="between parts"):
            await large
    assert session.batches == [[0, 1, 2, 3]]


async def test_versions_that_are_not_steady_always_have_a_thread() -> None:
    """However short their runs were: the next one may take for ever."""
    session = ScriptedSession()
    async with running(model(session, steady=False)) as made:
        for x in range(40):
            await submit(made, asked(x), None)
    assert all(name.startswith("session") for name in session.threads)


@pytest.mark.parametrize("warm", [0, 12])
async def test_a_session_that_breaks_ends_the_run_loudly(warm: int) -> None:
    """In a thread or not: the caller is told, and whoever runs the version learns why."""
    session = ScriptedSession()
    queue = queue_of(model(session))
    made = Batcher(queue, model(session), Meter())
    task = asyncio.create_task(made.run())
    for x in range(warm):
        await submit(made, asked(x), None)
    session.broken = True
    with pytest.raises(UnavailableError):
        await submit(made, asked(1), None)
    with pytest.raises(RuntimeError, match="nobody expected"):
        await task
