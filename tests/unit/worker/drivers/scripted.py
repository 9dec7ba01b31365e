"""A session that a test holds and lets go, and a batcher around it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from services.rpc.errors import InferplaneError, InvalidArgumentError
from services.worker.domain.batch import Answer, BatchLimits, BatchQueue
from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.queue_rules import QueueRules
from services.worker.domain.request_options import PLAIN, RequestOptions
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
        self.batches: list[list[Any]] = []
        self.outputs: list[Sequence[str]] = []
        self.rows_lost = False
        self.no_memory = False
        self.broken = False
        self.threads: set[str] = set()

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Compute, once it may."""
        x = feeds["x"]
        self.batches.append(x.tolist())
        self.outputs.append(tuple(outputs))
        self.threads.add(threading.current_thread().name)
        self.started.release()
        assert self.go.wait(60)
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

    async def has_started(self) -> None:
        """A run has begun."""
        assert await asyncio.to_thread(self.started.acquire, timeout=30)


class Meter:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.runs: list[ComputedBatch] = []

    @property
    def rows(self) -> list[int]:
        """Of each run."""
        return [run.rows for run in self.runs]

    @property
    def waits(self) -> int:
        """Requests that were computed."""
        return sum(len(run.waits) for run in self.runs)

    def computed(self, batch: ComputedBatch) -> None:
        """One run."""
        self.runs.append(batch)

    def watch_queue(self, rows: Callable[[], int], requests: Callable[[], int]) -> None:
        """Nobody looks."""
        raise AssertionError("not the batcher's")


def asked(
    *x: float,
    outputs: tuple[str, ...] = ("y", "z"),
    options: RequestOptions = PLAIN,
    tenant: str = "",
) -> InferRequest:
    """A request of some rows."""
    return InferRequest({"x": np.array(x, np.float32)}, outputs, options, tenant=tenant)


def model(*sessions: ScriptedSession, **how: Any) -> Model:
    """Batches of up to four rows."""
    told: dict[str, Any] = {
        "signature": SIGNATURE,
        "batched": True,
        "steady": True,
        "max_rows": 4,
    }
    return Model(sessions=sessions, **(told | how))


def queue_of(made: Model, **limits: Any) -> BatchQueue:
    """A queue for it, with small bounds."""
    bounds: dict[str, Any] = {
        "max_rows": made.max_rows,
        "max_queued_rows": 100,
        "max_queued_bytes": 1 << 20,
        "instances": len(made.sessions),
    }
    return BatchQueue(BatchLimits(**(bounds | limits)), made.padding)


async def submit(
    made: Batcher, request: InferRequest, deadline: float | None = None
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
async def running(
    computing: Model,
    meter: Meter | None = None,
    rules: QueueRules | None = None,
    **limits: Any,
) -> AsyncIterator[Batcher]:
    """A batcher that computes until the block ends; then its sums must hold."""
    rules = rules or QueueRules()
    queue = queue_of(computing, levels=rules.levels, **limits)
    made = Batcher(queue, computing, meter or Meter(), rules=rules)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        for session in computing.sessions:
            if isinstance(session, ScriptedSession):
                session.go.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        queue.check()


async def hold(session: ScriptedSession, made: Batcher) -> "asyncio.Task[Mapping[str, Array]]":
    """One request computes and is held, so that others gather behind it."""
    session.go.clear()
    first = asyncio.create_task(submit(made, asked(100)))
    await session.has_started()
    return first


async def gathered(
    made: Batcher, *requests: InferRequest
) -> "list[asyncio.Task[Mapping[str, Array]]]":
    """These requests in the queue, in order."""
    tasks = [asyncio.create_task(submit(made, r)) for r in requests]
    await asyncio.sleep(0)
    return tasks
