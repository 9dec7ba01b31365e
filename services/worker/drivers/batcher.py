"""Carries requests through a version's queue into its session: whenever the session is free, what waits is computed."""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from services.rpc.errors import (
    CancelledError,
    DeadlineExceededError,
    InferplaneError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.domain.batch import Answer, BatchQueue, Outputs, Taken, Waiting
from services.worker.domain.batch_arrays import (
    RowCountError,
    chunks,
    group_of,
    join,
    join_outputs,
    split,
    wanted_outputs,
)
from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.pace import Pace
from services.worker.domain.progress import Progress
from services.worker.domain.raw_contents import raw_size
from services.worker.domain.signature import Signature
from services.worker.ports.meter import BatchMeter
from services.worker.ports.session import Session


def _nothing() -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Model:
    """What computes, and how it may be used."""

    session: Session
    signature: Signature
    batched: bool  # whether requests may share a run
    runners: int  # runs at once, each in a thread of its own
    steady: bool = False  # whether rows alone say how long a run takes


class Batcher:
    """The one way to a session; each request that is admitted ends exactly once: outputs, an error, or it leaves.

    There is no task or future for a request: whenever a runner is free, what waits is taken and computed, and each
    caller is told by its own `deliver`. One event loop only.
    """

    def __init__(
        self,
        queue: BatchQueue,
        model: Model,
        meter: BatchMeter,
        delivered: Callable[[], None] = _nothing,
    ) -> None:
        """Assign only; the queue is this model's alone, the meter gets waits and batches.

        Args:
            queue: of this model alone.
            model: what computes.
            meter: gets waits and batches.
            delivered: called after each batch's callers have been told, to write many answers at once.
        """
        self._queue = queue
        self._model = model
        self._meter = meter
        self._delivered = delivered
        self._threads = ThreadPoolExecutor(model.runners, thread_name_prefix="session")
        self._free = model.runners
        self._runs: set[Taken] = set()  # being computed
        self._closed = False
        self._next: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failed: asyncio.Future[None] | None = None
        self._pace = Pace()
        self._progress = Progress()

    async def submit(self, request: InferRequest, deadline: float | None) -> Outputs:
        """Outputs of one request; `deadline` is a time of the monotonic clock.

        Raises ResourceExhaustedError at once if the queue is full, and what the session raises.
        """
        answered: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()

        def deliver(answer: Answer) -> None:
            if answered.done():  # cancelled; `leave` follows
                return
            if isinstance(answer, InferplaneError):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)

        waiting = self.admit(request, deadline, deliver)
        try:
            return await answered
        finally:  # also when the caller has gone
            self.leave(waiting)

    def admit(
        self, request: InferRequest, deadline: float | None, deliver: Callable[[Answer], None]
    ) -> Waiting:
        """Queue a request; `deliver` is called once, later, unless the request leaves before.

        Raises ResourceExhaustedError if the queue is full, UnavailableError once the version goes.
        """
        if self._closed:
            raise _closing()
        feeds = request.feeds
        rows, group = group_of(feeds) if self._model.batched else (1, None)
        waiting = Waiting(
            feeds=feeds,
            outputs=request.outputs,
            rows=rows,
            size=raw_size(feeds.values()),
            group=group,
            arrived=time.monotonic(),
            deadline=deadline,
            deliver=deliver,
        )
        self._queue.admit(waiting)
        if self._free:
            self._step_soon(0.0)
        return waiting

    def leave(self, waiting: Waiting) -> None:
        """The caller has gone: it is not told any more, and if it still waits nothing is computed for it."""
        waiting.deliver = None
        self._queue.leave(waiting)

    def stuck_for(self, patience: float) -> float | None:
        """How long a run has lasted, if that is longer than `patience` and far longer than any before."""
        return self._progress.stuck_for(time.monotonic(), patience)

    async def run(self) -> None:
        """Compute until cancelled; then end what still waits with UnavailableError."""
        self._loop = asyncio.get_running_loop()
        self._failed = self._loop.create_future()
        self._step_soon(0.0)
        try:
            await self._failed
        finally:
            self._closed, self._loop = True, None
            if self._next is not None:
                self._next.cancel()
            computing = [waiting for taken in self._runs for waiting in taken.batch]
            for waiting in (*computing, *self._queue.take_all()):
                waiting.end(_closing())
            self._delivered()
            # Threads that still compute hold the session; nobody waits for them.
            self._threads.shutdown(wait=False)

    def _step_soon(self, delay: float) -> None:
        """After what else is ready now, so that requests that arrive together are taken together."""
        if self._loop is None:
            return
        if self._next is not None:
            if delay or not isinstance(self._next, asyncio.TimerHandle):
                return
            self._next.cancel()
        if delay:
            self._next = self._loop.call_later(delay, self._step)
        else:
            self._next = self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Take what is due and compute it, if a runner is free."""
        self._next = None
        try:
            while self._free:
                due = self._queue.due()
                if due is None:
                    return
                now = time.monotonic()
                if due > now:
                    self._step_soon(due - now)
                    return
                if self._compute_due(now):
                    return
        except Exception as error:  # noqa: BLE001 - supervises the model: its failure ends `run`
            self._fail(error)

    def _compute_due(self, now: float) -> bool:
        """Compute one batch, here if that is short, else in a thread; whether others should have a turn now."""
        taken = self._queue.take(now)
        for waiting in taken.late:
            waiting.end(DeadlineExceededError("the deadline passed in the queue"))
        if not taken.batch:
            self._delivered()
            return False
        self._runs.add(taken)
        if self._is_short(taken):
            self._finish(taken, self._run_timed(taken), now)
            self._step_soon(0.0)  # what arrived meanwhile is read first
            return True
        self._free -= 1
        assert self._loop is not None
        running = self._loop.run_in_executor(self._threads, self._run_timed, taken)
        running.add_done_callback(partial(self._from_thread, taken, now))
        return False

    def _is_short(self, taken: Taken) -> bool:
        """Whether the loop may wait for it; where inputs differ in rows, rows say nothing."""
        counted = not self._model.batched or taken.batch[0].group is not None
        return self._model.steady and counted and self._pace.is_short(taken.rows)

    def _from_thread(
        self, taken: Taken, started: float, running: "asyncio.Future[list[Answer]]"
    ) -> None:
        self._free += 1
        if running.cancelled():  # the loop ends
            return
        error = running.exception()
        if isinstance(error, Exception):
            self._fail(error)
            return
        self._finish(taken, running.result(), started)
        self._step()

    def _finish(self, taken: Taken, answers: list[Answer], started: float) -> None:
        self._runs.discard(taken)
        seconds = time.monotonic() - started
        self._queue.note_run(taken.rows, seconds)
        waits = [started - waiting.arrived for waiting in taken.batch]
        self._meter.computed(
            ComputedBatch(
                rows=taken.rows, waits=waits, input_ns=0, infer_ns=int(seconds * 1e9), output_ns=0
            )
        )
        for waiting, answer in zip(taken.batch, answers, strict=True):
            waiting.end(answer)
        self._delivered()

    def _fail(self, error: Exception) -> None:
        """Let `run` end with what nobody expected."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    def _run_timed(self, taken: Taken) -> list[Answer]:
        """Run, and learn how long the computing alone takes, without the way to a thread and back."""
        # Of this thread alone: on a busy machine a run is not long because others ran meanwhile.
        started = time.thread_time()
        answers = self._run_batch(taken.batch)
        self._pace.note(taken.rows, time.thread_time() - started)
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
            return join_outputs([self._run_piece(piece, waiting) for piece in pieces])
        except ValueError:  # shapes that depend on the data don't fit below each other
            return self._run(waiting.feeds, [waiting])

    def _run_piece(self, piece: Mapping[str, Array], waiting: Waiting) -> Outputs:
        """A large request is given up between its pieces once nobody wants it any more."""
        if waiting.deliver is None:
            raise CancelledError("the caller has gone")
        if waiting.deadline is not None and waiting.deadline <= time.monotonic():
            raise DeadlineExceededError("the deadline passed between parts of the request")
        return self._run(piece, [waiting])

    def _run(self, feeds: Mapping[str, Array], batch: list[Waiting]) -> Outputs:
        outputs = wanted_outputs(self._model.signature, batch)
        run = self._progress.begin(time.monotonic())
        try:
            return self._model.session.run(feeds, outputs)
        finally:
            self._progress.end(run, time.monotonic())


def _closing() -> UnavailableError:
    return UnavailableError(
        "the version is being unloaded from this worker", reason="VERSION_UNLOADED", retry_after=0.0
    )
