"""Carries requests through a version's queue into its session: whenever the session is free, what waits is computed."""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest

from services.rpc.errors import (
    DeadlineExceededError,
    InferplaneError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.domain.batch import BatchQueue, Taken, Waiting
from services.worker.domain.batch_arrays import (
    RowCountError,
    chunks,
    group_of,
    join,
    join_outputs,
    split,
    wanted_outputs,
)
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.pace import Pace
from services.worker.domain.raw_contents import raw_size
from services.worker.domain.signature import Signature
from services.worker.ports.meter import VersionMeter
from services.worker.ports.session import Session

Outputs = Mapping[str, Array]
Answer = Outputs | InferplaneError


@dataclass(frozen=True, slots=True)
class Model:
    """What computes, and how it may be used."""

    session: Session
    signature: Signature
    batched: bool  # whether requests may share a run
    runners: int  # runs at once, each in a thread of its own


class Batcher:
    """The one way to a session. `submit` ends each request exactly once: outputs, an error, or the caller's cancel."""

    def __init__(self, queue: BatchQueue, model: Model, meter: VersionMeter) -> None:
        """Assign only; the queue is this model's alone, the meter gets waits and batches."""
        self._queue = queue
        self._model = model
        self._meter = meter
        self._threads = ThreadPoolExecutor(model.runners, thread_name_prefix="session")
        self._answers: dict[Waiting, asyncio.Future[Outputs]] = {}
        self._arrived = asyncio.Event()
        self._closed = False
        self._pace = Pace()

    async def submit(self, request: InferRequest, deadline: float | None) -> Outputs:
        """Outputs of one request; `deadline` is a time of the event loop's clock.

        Raises ResourceExhaustedError at once if the queue is full, and what the session raises.
        """
        if self._closed:
            raise _closing()
        rows, group = group_of(request.feeds) if self._model.batched else (1, None)
        waiting = Waiting(
            feeds=request.feeds,
            outputs=request.outputs,
            rows=rows,
            size=raw_size(request.feeds.values()),
            group=group,
            arrived=time.monotonic(),
            deadline=deadline,
        )
        self._queue.admit(waiting)
        answer: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()
        self._answers[waiting] = answer
        self._arrived.set()
        try:
            return await answer
        finally:  # also when the caller has gone
            self._answers.pop(waiting, None)
            self._queue.leave(waiting)

    async def run(self) -> None:
        """Compute until cancelled; then end what still waits with UnavailableError."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._model.runners):
                    tasks.create_task(self._serve())
        finally:
            self._closed = True
            for waiting in self._queue.take_all():
                self._end(waiting, _closing())
            # Threads that still compute hold the session; nobody waits for them.
            self._threads.shutdown(wait=False)

    async def _serve(self) -> None:
        while True:
            await self._until_due()
            taken = self._queue.take(time.monotonic())
            for waiting in taken.late:
                self._end(waiting, DeadlineExceededError("the deadline passed in the queue"))
            if taken.batch:
                await self._compute(taken)

    async def _until_due(self) -> None:
        while True:
            due = self._queue.due()
            delay = None if due is None else due - time.monotonic()
            if delay is not None and delay <= 0:
                return
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), delay)
            except TimeoutError:
                return

    async def _compute(self, taken: Taken) -> None:
        started = time.monotonic()
        for waiting in taken.batch:
            self._meter.waited(started - waiting.arrived)
        answers: list[Answer] = []
        try:
            if self._pace.is_short(taken.rows):
                answers = self._run_timed(taken)
            else:
                loop = asyncio.get_running_loop()
                answers = await loop.run_in_executor(self._threads, self._run_timed, taken)
            seconds = time.monotonic() - started
            self._queue.note_run(taken.rows, seconds)
            self._meter.computed(taken.rows, seconds)
        finally:  # when this is cancelled there are no answers, and callers are told that
            for waiting, answer in zip_longest(taken.batch, answers):
                self._end(waiting, answer or _closing())

    def _run_timed(self, taken: Taken) -> list[Answer]:
        """Run, and learn how long the computing alone takes, without the way to a thread and back."""
        started = time.monotonic()
        answers = self._run_batch(taken.batch)
        self._pace.note(taken.rows, time.monotonic() - started)
        return answers

    def _run_batch(self, batch: list[Waiting]) -> list[Answer]:
        """One answer for each request, in order; runs in a thread."""
        if len(batch) > 1:
            try:
                return list(split(self._run(join(batch), batch), batch))
            except (InferplaneError, RowCountError, ValueError, MemoryError):
                # One request spoils the batch: alone, only that one fails.
                pass
        return [self._run_single(waiting) for waiting in batch]

    def _run_single(self, waiting: Waiting) -> Answer:
        try:
            return self._run_chunks(waiting)
        except InferplaneError as error:
            return error
        except MemoryError:
            return ResourceExhaustedError("no memory for this request", reason="OUT_OF_MEMORY")

    def _run_chunks(self, waiting: Waiting) -> Outputs:
        if waiting.group is None:
            return self._run(waiting.feeds, [waiting])
        pieces = chunks(waiting.feeds, waiting.rows, self._queue.limits.max_rows)
        try:
            return join_outputs([self._run(piece, [waiting]) for piece in pieces])
        except ValueError:  # shapes that depend on the data don't fit below each other
            return self._run(waiting.feeds, [waiting])

    def _run(self, feeds: Mapping[str, Array], batch: list[Waiting]) -> Outputs:
        return self._model.session.run(feeds, wanted_outputs(self._model.signature, batch))

    def _end(self, waiting: Waiting, answer: Answer) -> None:
        future = self._answers.pop(waiting, None)
        if future is None or future.done():  # the caller has gone
            return
        if isinstance(answer, InferplaneError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _closing() -> UnavailableError:
    return UnavailableError(
        "the version is being unloaded from this worker", reason="VERSION_UNLOADED", retry_after=0.0
    )
