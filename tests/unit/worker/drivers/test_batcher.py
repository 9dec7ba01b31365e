"""The asyncio driver of a queue, with a session that a test holds and lets go."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from services.rpc.errors import (
    DeadlineExceededError,
    InferplaneError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.domain.batch import Answer, BatchLimits, BatchQueue
from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.signature import Signature, spec_of
from services.worker.drivers.batcher import Batcher, Model

SIGNATURE = Signature(
    (spec_of("x", "FP32", (-1,)),), (spec_of("y", "FP32", (-1,)), spec_of("z", "FP32", (-1,)))
)


class ScriptedSession:
    """y = 2 · x, z = -x; refuses negative x; runs only while it is let."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.started = threading.Semaphore(0)
        self.batches: list[list[float]] = []
        self.outputs: list[Sequence[str]] = []
        self.rows_lost = False
        self.no_memory = False
        self.broken = False
        self.threads: set[str] = set()

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        x = feeds["x"]
        self.batches.append(x.tolist())
        self.outputs.append(tuple(outputs))
        self.threads.add(threading.current_thread().name)
        self.started.release()
        assert self.go.wait(10)
        if self.broken:
            raise RuntimeError("nobody expected this")
        if self.no_memory:
            raise MemoryError
        if (x < 0).any():
            raise InvalidArgumentError("negative")
        if self.rows_lost and len(x) > 1:
            x = x[:1]
        answers = {"y": 2 * x, "z": -x}
        return {name: answers[name] for name in outputs}


class Meter:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.waits = 0

    def computed(self, batch: ComputedBatch) -> None:
        self.rows.append(batch.rows)
        self.waits += len(batch.waits)

    def watch_queue(self, rows: Callable[[], int], requests: Callable[[], int]) -> None:
        raise AssertionError("not the batcher's")


def asked(*x: float, outputs: tuple[str, ...] = ("y", "z")) -> InferRequest:
    return InferRequest({"x": np.array(x, np.float32)}, outputs)


def model(session: ScriptedSession, *, batched: bool = True, steady: bool = True) -> Model:
    return Model(
        sessions=[session], signature=SIGNATURE, batched=batched, steady=steady, max_rows=4
    )


async def submit(
    made: Batcher, request: InferRequest, deadline: float | None
) -> Mapping[str, Array]:
    """The answer of one request, as its caller waits for it."""
    answered: asyncio.Future[Mapping[str, Array]] = asyncio.get_running_loop().create_future()

    def deliver(answer: Answer) -> None:
        if isinstance(answer, InferplaneError):
            answered.set_exception(answer)
        else:
            answered.set_result(answer)

    waiting = made.admit(request, deadline, deliver)
    try:
        return await answered
    finally:
        made.leave(waiting)


@asynccontextmanager
async def batcher(
    session: ScriptedSession,
    meter: Meter | None = None,
    *,
    batched: bool = True,
    rows: int = 100,
    steady: bool = True,
) -> AsyncIterator[Batcher]:
    queue = BatchQueue(BatchLimits(max_rows=4, max_queued_rows=rows, max_queued_bytes=1 << 20))
    made = Batcher(queue, model(session, batched=batched, steady=steady), meter or Meter())
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        session.go.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        queue.check()


async def hold(session: ScriptedSession, made: Batcher) -> "asyncio.Task[Mapping[str, Array]]":
    """One request computes and is held, so that others gather behind it."""
    session.go.clear()
    first = asyncio.create_task(submit(made, asked(100), None))
    assert await asyncio.to_thread(session.started.acquire, timeout=10)
    return first


async def gathered(
    made: Batcher, *requests: InferRequest
) -> "list[asyncio.Task[Mapping[str, Array]]]":
    """These requests in the queue, in order."""
    tasks = [asyncio.create_task(submit(made, r, None)) for r in requests]
    await asyncio.sleep(0)
    return tasks


async def test_what_waits_while_the_session_is_busy_goes_together() -> None:
    """1 + 2 + 1 rows fill a batch, the fourth request follows; each gets its own rows and outputs."""
    session, meter = ScriptedSession(), Meter()
    async with batcher(session, meter) as made:
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
    async with batcher(session) as made:
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
    async with batcher(session) as made:
        await hold(session, made)
        tasks = await gathered(made, asked(1), asked(2))
        session.go.set()
        answers = await asyncio.gather(*tasks)
    assert [a["y"].tolist() for a in answers] == [[2], [4]]


async def test_a_large_request_is_computed_in_parts() -> None:
    """Never more than max_rows at once, and its rows come back in order."""
    session = ScriptedSession()
    async with batcher(session) as made:
        answer = await submit(made, asked(*range(10)), None)
    assert session.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert answer["y"].tolist() == [2.0 * n for n in range(10)]


async def test_unbatched_requests_go_one_by_one_and_whole() -> None:
    """Without batching nothing is joined and nothing cut."""
    session = ScriptedSession()
    async with batcher(session, batched=False) as made:
        await hold(session, made)
        tasks = await gathered(made, asked(*range(6)), asked(7))
        session.go.set()
        await asyncio.gather(*tasks)
    assert session.batches == [[100], list(range(6)), [7]]


async def test_the_late_are_told_and_not_computed() -> None:
    """A deadline that passes in the queue is DEADLINE_EXCEEDED."""
    session = ScriptedSession()
    async with batcher(session) as made:
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
    async with batcher(session) as made:
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
    async with batcher(session, rows=2) as made:
        await hold(session, made)
        tasks = await gathered(made, asked(1), asked(2))
        with pytest.raises(ResourceExhaustedError):
            await submit(made, asked(3), None)
        session.go.set()
        assert len(await asyncio.gather(*tasks)) == 2


async def test_no_memory_is_an_answer() -> None:
    """Memory that runs out fails the request, not the version."""
    session = ScriptedSession()
    async with batcher(session) as made:
        session.no_memory = True
        with pytest.raises(ResourceExhaustedError):
            await submit(made, asked(1), None)
        session.no_memory = False
        assert (await submit(made, asked(1), None))["y"].tolist() == [2]


async def test_a_stop_ends_everyone_once() -> None:
    """What waits and what computes is told UNAVAILABLE, and so is who comes later."""
    session = ScriptedSession()
    async with batcher(session) as made:
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
    queue = BatchQueue(BatchLimits(max_rows=4, max_queued_rows=100, max_queued_bytes=1 << 20))
    announced = asyncio.Event()

    def delivered() -> None:
        heard.append("delivered")
        announced.set()

    made = Batcher(queue, model(session), Meter(), delivered)
    for x in (1, 2, 3):
        waiting = made.admit(asked(x), None, lambda answer, x=x: heard.append((x, answer)))  # type: ignore[misc]
        if x == 2:
            made.leave(waiting)
    running = asyncio.create_task(made.run())
    await announced.wait()
    assert session.batches == [[1, 3]]
    assert [h if isinstance(h, str) else h[0] for h in heard] == [1, 3, "delivered"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_short_runs_are_computed_without_a_thread() -> None:
    """After enough of them in a row; what arrives together still goes together."""
    session = ScriptedSession()
    async with batcher(session) as made:
        for x in range(12):
            assert (await submit(made, asked(x), None))["y"].tolist() == [2 * x]
        answers = await asyncio.gather(*(submit(made, asked(x), None) for x in range(4)))
        assert [a["y"].tolist() for a in answers] == [[0], [2], [4], [6]]
    assert session.batches[12:] in ([[0, 1, 2, 3]], [[0], [1, 2, 3]])


async def test_a_large_request_whose_caller_goes_is_not_computed_on() -> None:
    """Of three parts only the one that had begun is computed."""
    session = ScriptedSession()
    async with batcher(session) as made:
        session.go.clear()
        large = asyncio.create_task(submit(made, asked(*range(12)), None))
        assert await asyncio.to_thread(session.started.acquire, timeout=10)
        large.cancel()
        await asyncio.gather(large, return_exceptions=True)
        session.go.set()
        assert (await submit(made, asked(50), None))["y"].tolist() == [100]
    assert session.batches == [[0, 1, 2, 3], [50]]


async def test_a_large_request_ends_at_its_deadline() -> None:
    """The parts that are left when it passes are not computed."""
    session = ScriptedSession()
    async with batcher(session) as made:
        session.go.clear()
        deadline = time.monotonic() + 0.2
        large = asyncio.create_task(submit(made, asked(*range(12)), deadline))
        assert await asyncio.to_thread(session.started.acquire, timeout=10)
        await asyncio.sleep(deadline - time.monotonic() + 0.01)  # it has passed then
        session.go.set()
        with pytest.raises(DeadlineExceededError, match="between parts"):
            await large
    assert session.batches == [[0, 1, 2, 3]]


async def test_versions_that_are_not_steady_always_have_a_thread() -> None:
    """However short their runs were: the next one may take for ever."""
    session = ScriptedSession()
    async with batcher(session, steady=False) as made:
        for x in range(40):
            await submit(made, asked(x), None)
    assert all(name.startswith("session") for name in session.threads)


@pytest.mark.parametrize("warm", [0, 12])
async def test_a_session_that_breaks_ends_the_run_loudly(warm: int) -> None:
    """In a thread or not: the caller is told, and whoever runs the version learns why."""
    session = ScriptedSession()
    queue = BatchQueue(BatchLimits(max_rows=4, max_queued_rows=100, max_queued_bytes=1 << 20))
    made = Batcher(queue, model(session), Meter())
    running = asyncio.create_task(made.run())
    for x in range(warm):
        await submit(made, asked(x), None)
    session.broken = True
    with pytest.raises(UnavailableError):
        await submit(made, asked(1), None)
    with pytest.raises(RuntimeError, match="nobody expected"):
        await running
