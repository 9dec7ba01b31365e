"""The thread that an engine computes in, the way in (an inbox) and out of it (one call to the event loop per step)."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread

from services.rpc.errors import InferplaneError
from services.worker.llm.domain.generation import GenerationRequest, RequestId
from services.worker.llm.drivers.step_report import StepReport
from services.worker.llm.drivers.stepper import Stepper

_QUIET_SECONDS = 1.0  # without work, before it is looked whether everything adds up

Told = Callable[[StepReport], None]


class EngineThread:
    """Turns the stepper as long as there is work, and sleeps otherwise."""

    def __init__(self, stepper: Stepper, told: Told) -> None:
        """`told` is called on the event loop after each turn."""
        self._stepper = stepper
        self._told = told
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closed = False
        self._thread: Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Begin; what this returns is done when the thread has ended, after everything it had to tell."""
        ended: asyncio.Future[None] = loop.create_future()
        self._thread = Thread(target=self._run, args=(loop, ended), name="engine", daemon=True)
        self._thread.start()
        return ended

    def join(self) -> None:
        """Once what `start` returned is done: until the thread has really gone, which is at once."""
        assert self._thread is not None
        self._thread.join()

    def submit(self, number: RequestId, request: GenerationRequest, room: int) -> None:
        """From the event loop: see `Stepper.submit`."""
        self._inbox.put(partial(self._stepper.submit, number, request, room))

    def abort(self, number: RequestId) -> None:
        """From the event loop: see `Stepper.abort`."""
        self._inbox.put(partial(self._stepper.abort, number))

    def close(self, error: InferplaneError) -> None:
        """From the event loop: end what is open with this error, then the thread."""
        self._inbox.put(partial(self._close, error))

    def _run(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        try:
            while not self._closed:
                self._turn(loop)
        except Exception as error:  # noqa: BLE001 - the thread's supervisor is whoever awaits `ended`
            _tell(loop, partial(_fail, ended, error))
        else:
            _tell(loop, partial(_done, ended))

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        stepper = self._stepper
        self._take_in()
        stepper.end_late()
        busy = not self._closed and stepper.step(self._take_in)
        report = stepper.reported()
        if report is not None:
            _tell(loop, partial(self._told, report))
        if not busy and not self._closed:
            self._next()()

    def _next(self) -> Callable[[], None]:
        """What comes next; meanwhile everything must add up."""
        try:
            return self._inbox.get(timeout=_QUIET_SECONDS)
        except Empty:
            self._stepper.check()
            return self._inbox.get()

    def _take_in(self) -> None:
        """All that has come."""
        inbox = self._inbox
        while not inbox.empty():
            inbox.get_nowait()()

    def _close(self, error: InferplaneError) -> None:
        self._stepper.end_all(error)
        self._closed = True


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has gone, and with it everybody who could be told
        loop.call_soon_threadsafe(call)


def _done(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _fail(ended: asyncio.Future[None], error: Exception) -> None:
    if not ended.done():
        ended.set_exception(error)
