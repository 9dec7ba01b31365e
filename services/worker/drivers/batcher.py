"""Carries requests through a version's queue into its sessions: whenever one is free, what waits is computed."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from services.rpc.errors import DeadlineExceededError, UnavailableError
from services.worker.domain.batch import Answer, BatchQueue, Taken, Waiting
from services.worker.domain.batch_group import Grouping
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.pace import Pace
from services.worker.domain.progress import Progress
from services.worker.domain.queue_rules import QueueRules
from services.worker.domain.request_use import RequestUse
from services.worker.domain.waiting import RunShare
from services.worker.drivers.batch_run import BatchRun, Model, Ran
from services.worker.ports.meter import BatchMeter

__all__ = ["Batcher", "Model"]

_NO_FEEDS: Mapping[str, Array] = {}


def _nothing() -> None:
    """Nobody wants to know."""


class Batcher:
    """The one way to a version's sessions. Each request that is admitted ends once: outputs, an error, or it leaves.

    There is no task or future for a request: whenever an instance is free, what waits is taken and computed, and
    callers are told by their own `deliver`, or a whole batch of them by their sink. One event loop only.
    """

    def __init__(
        self,
        queue: BatchQueue,
        model: Model,
        meter: BatchMeter,
        delivered: Callable[[], None] = _nothing,
        rules: QueueRules | None = None,
    ) -> None:
        """Assign only.

        Args:
            queue: of this model alone.
            model: what computes.
            meter: gets each run.
            delivered: called after each batch's callers have been told, to write many answers at once.
            rules: what a request's options mean.
        """
        self._queue = queue
        self._model = model
        self._meter = meter
        self._delivered = delivered
        self._rules = rules or QueueRules()
        self._grouping = Grouping(model.signature, model.padding, batched=model.batched)
        self._threads = [_thread(index, model.cpus) for index in range(len(model.sessions))]
        self._idle = list(range(len(model.sessions)))  # instances
        self._runs: set[Taken] = set()  # being computed
        self._computing = 0  # requests in them
        self._closed = False
        self._next: asyncio.Handle | None = None
        self._next_is_later = False  # it waits for a window
        self._timeout: asyncio.Handle | None = None
        self._timeout_due = 0.0  # when it looks
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failed: asyncio.Future[None] | None = None
        self._pace = Pace()
        self._progress = Progress()

    def admit(
        self, request: InferRequest, deadline: float | None, deliver: Callable[[Answer], None]
    ) -> Waiting:
        """Queue a request; `deliver` is called once, later, unless the request leaves before.

        Raises ResourceExhaustedError if there is no room, InvalidArgumentError if its options are wrong,
        UnavailableError once the version goes.
        """
        terms = self._grouping.terms(request)
        self._rules.apply(terms, request.options)
        now = time.monotonic()
        return self.enter(
            Waiting(
                terms, request.feeds, now, deadline, deliver, facts=request.facts, use=request.use
            )
        )

    def enter(self, waiting: Waiting) -> Waiting:
        """Queue a request with terms of one that was admitted before and is like it: shapes, outputs, options, tenant.

        Raises as `admit`.
        """
        if self._closed:
            raise _closing()
        self._queue.admit(waiting)
        if self._idle:
            self._step_soon(0.0)
        if waiting.terms.timeout:
            self._watch_timeouts()
        return waiting

    def rows(self, request: InferRequest) -> int:
        """Rows that a request has here."""
        return self._grouping.rows(request)

    def leave(self, waiting: Waiting) -> None:
        """The caller has gone: it is not told any more, and if it still waits nothing is computed for it."""
        waiting.forget()
        if self._queue.leave(waiting):
            waiting.feeds = _NO_FEEDS

    def stuck_for(self, patience: float) -> float | None:
        """How long a run has lasted, if that is longer than `patience` and far longer than any before."""
        return self._progress.stuck_for(time.monotonic(), patience)

    async def run(self) -> None:
        """Compute until cancelled; then end what still waits with UnavailableError."""
        self._loop = asyncio.get_running_loop()
        self._failed = self._loop.create_future()
        self._step_soon(0.0)
        self._watch_timeouts()
        try:
            await self._failed
        finally:
            self._closed, self._loop = True, None
            for handle in (self._next, self._timeout):
                if handle is not None:
                    handle.cancel()
            computing = [waiting for taken in self._runs for waiting in taken.batch]
            for waiting in (*computing, *self._queue.take_all()):
                waiting.end(_closing())
            self._delivered()
            # Threads that still compute hold their session; nobody waits for them.
            for thread in self._threads:
                thread.shutdown(wait=False)

    def _step_soon(self, delay: float) -> None:
        """After what else is ready now, so that requests that arrive together are taken together."""
        if self._loop is None:
            return
        if self._next is not None:
            if delay or not self._next_is_later:
                return
            self._next.cancel()
        self._next_is_later = delay > 0
        if delay:
            self._next = self._loop.call_later(delay, self._step)
        else:
            self._next = self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Take what is due and compute it, while instances are free."""
        self._next = None
        try:
            while self._idle:
                now = time.monotonic()
                due = self._queue.due(now, self._computing)
                if due is None:
                    return
                if due > now:
                    self._step_soon(due - now)
                    return
                if self._compute_due(now):
                    return
        except Exception as error:  # noqa: BLE001 - supervises the model: its failure ends `run`
            self._fail(error)

    def _compute_due(self, now: float) -> bool:
        """Compute one batch, here if that is short, else in a thread; whether others should have a turn now."""
        taken = self._queue.take(now, self._computing, len(self._idle))
        if taken.late:
            self._end_late(taken.late, now)
        if not taken.batch:
            return False
        self._runs.add(taken)
        self._computing += len(taken.batch)
        run = BatchRun(self._model, self._progress, taken.batch, now)
        if self._is_short(taken):
            self._finish(taken, self._timed(run, taken.rows, self._idle[-1]), now)
            self._step_soon(0.0)  # what arrived meanwhile is read first
            return True
        instance = self._idle.pop()
        assert self._loop is not None
        running = self._loop.run_in_executor(
            self._threads[instance], self._timed, run, taken.rows, instance
        )
        running.add_done_callback(partial(self._from_thread, taken, now, instance))
        return False

    def _is_short(self, taken: Taken) -> bool:
        """Whether the loop may wait for it; where inputs differ in rows, rows say nothing."""
        counted = not self._model.batched or taken.batch[0].terms.group is not None
        return self._model.steady and counted and self._pace.is_short(taken.rows)

    def _timed(self, run: BatchRun, rows: int, instance: int) -> Ran:
        """Run, and learn how long the computing alone takes, without the way to a thread and back."""
        # Of this thread alone: on a busy machine a run is not long because others ran meanwhile.
        started = time.thread_time()
        ran = run.run(self._model.sessions[instance])
        self._pace.note(rows, time.thread_time() - started)
        return ran

    def _from_thread(
        self, taken: Taken, started: float, instance: int, running: "asyncio.Future[Ran]"
    ) -> None:
        self._idle.append(instance)
        if running.cancelled():  # the loop ends
            return
        error = running.exception()
        if isinstance(error, Exception):
            self._fail(error)
            return
        try:
            self._finish(taken, running.result(), started)
        except Exception as failure:  # noqa: BLE001 - as in `_step`
            self._fail(failure)
        else:
            self._step()

    def _finish(self, taken: Taken, ran: Ran, started: float) -> None:
        self._runs.discard(taken)
        self._computing -= len(taken.batch)
        now = time.monotonic()
        self._queue.note_run(taken, now - started, now, (ran.area, ran.compute_ns / 1e9))
        for run in ran.runs:
            self._meter.computed(run)
        if ran.outputs is not None:
            sink = taken.batch[0].sink
            assert sink is not None
            share = RunShare(started, ran.compute_ns, taken.rows)
            sink.answered(taken.batch, ran.outputs, share)
        else:
            self._tell(taken, ran, started)
        self._delivered()

    def _tell(self, taken: Taken, ran: Ran, started: float) -> None:
        """Each caller by itself."""
        share = RunShare(started, ran.compute_ns, taken.rows)
        for waiting, answer in zip(taken.batch, ran.answers, strict=True):
            if waiting.facts is not None:
                waiting.facts.ran(started - waiting.arrived, ran.compute_ns, taken.rows)
            if waiting.sink is not None:
                waiting.use = RequestUse()
            if waiting.use is not None:
                waiting.use.ran(started - waiting.arrived, share.of(waiting.rows))
            waiting.end(answer)

    def _watch_timeouts(self) -> None:
        """Wake up when the next request has waited too long."""
        due = self._queue.next_timeout()
        if due is None or self._loop is None:
            return
        if self._timeout is not None:
            if self._timeout_due <= due:
                return
            self._timeout.cancel()
        self._timeout_due = due
        self._timeout = self._loop.call_later(max(0.0, due - time.monotonic()), self._end_timed_out)

    def _end_timed_out(self) -> None:
        self._timeout = None
        now = time.monotonic()
        late = self._queue.take_timed_out(now)
        if late:
            self._end_late(late, now)
        self._watch_timeouts()

    def _end_late(self, late: Sequence[Waiting], now: float) -> None:
        for waiting in late:
            waiting.feeds = _NO_FEEDS
            if waiting.use is not None:
                waiting.use.ran(now - waiting.arrived, 0)
            waiting.end(_late(waiting, now))
        self._delivered()

    def _fail(self, error: Exception) -> None:
        """Let `run` end with what nobody expected."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)


def _thread(index: int, cpus: Sequence[tuple[int, ...]]) -> ThreadPoolExecutor:
    """Where one instance computes, on its own CPUs if it has some."""
    name = f"session-{index}"
    if cpus and cpus[index]:
        # 0: the calling thread. The session's other threads are bound when it is made.
        return ThreadPoolExecutor(1, name, os.sched_setaffinity, (0, cpus[index]))
    return ThreadPoolExecutor(1, name)


def _late(waiting: Waiting, now: float) -> DeadlineExceededError:
    if waiting.deadline is not None and waiting.deadline <= now:
        return DeadlineExceededError("the deadline passed in the queue")
    timeout = waiting.terms.timeout
    return DeadlineExceededError(
        f"it waited {timeout:.6f} s, as long as the version or its parameter `timeout` allow",
        reason="QUEUE_TIMEOUT",
        metadata={"timeout_seconds": f"{timeout:.6f}"},
    )


def _closing() -> UnavailableError:
    return UnavailableError(
        "the version is being unloaded from this worker", reason="VERSION_UNLOADED", retry_after=0.0
    )
