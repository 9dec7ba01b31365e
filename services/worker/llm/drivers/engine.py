"""The engine of one language model: requests go in from the event loop, a thread of its own continues them."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count

import structlog

from services.rpc.errors import UnavailableError
from services.worker.domain.progress import Progress
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest, RequestId, Update
from services.worker.llm.domain.queue_pace import QueuePace
from services.worker.llm.domain.runner_health import RunnerHealth
from services.worker.llm.drivers.engine_parts import door_of, stepper_of
from services.worker.llm.drivers.engine_thread import EngineThread
from services.worker.llm.drivers.step_report import StepReport
from services.worker.llm.ports.engine import Deliver, EngineLoad
from services.worker.llm.ports.engine_meter import EngineMeter
from services.worker.llm.ports.language_model import LanguageModel

_log = structlog.get_logger(__name__)

_LAST_STEP_SECONDS = 10.0  # that the step may take which computes when the engine is closed


@dataclass(slots=True, eq=False)
class _Caller:
    """Who waits for a request."""

    deliver: Deliver
    tenant: str
    waits: bool = True  # nothing of it has been computed yet


class Engine:
    """A `TextEngine`; `load` and `stuck_for` may also be asked from other threads."""

    def __init__(self, model: LanguageModel, settings: EngineSettings, meter: EngineMeter) -> None:
        """Nothing is computed until `run`; the runner is closed by whoever opened it."""
        self._meter = meter
        self._door = door_of(model, settings)
        self._progress = Progress()
        self._health = RunnerHealth()
        self._stepper = stepper_of(model, settings, self._progress)
        self._thread = EngineThread(self._stepper, self._told)
        self._numbers = count()
        self._callers: dict[RequestId, _Caller] = {}
        self._waits = 0  # requests of which nothing has been computed yet
        self._waiting: Counter[str] = Counter()  # the same by tenant
        self._pace = QueuePace()
        self._load = self._stepper.load()
        self._closed = False

    async def run(self) -> None:
        """Compute until cancelled; then whatever is open ends with UNAVAILABLE."""
        ended = self._thread.start(asyncio.get_running_loop())
        try:
            await asyncio.shield(ended)
        finally:
            self._closed = True
            self._thread.close(_closing())
            await asyncio.wait([ended], timeout=_LAST_STEP_SECONDS)
            for number in list(self._callers):  # of a thread that failed, or whose step never ends
                self._deliver(number, Update(error=_closing()))
            if ended.done():
                self._thread.join()
                ended.result()
            else:
                _log.error("engine closed while a step is still computed; nobody waits for it")

    def submit(self, request: GenerationRequest, deliver: Deliver) -> RequestId:
        """See `TextEngine`."""
        if self._closed:
            raise _closing()
        room = self._door.room(request)
        own, hint = self._waiting[request.tenant], self._pace.seconds_for(self._waits)
        self._door.check_queue(self._waits, own, hint, tenant=request.tenant)
        number = RequestId(next(self._numbers))
        self._callers[number] = _Caller(deliver, request.tenant)
        self._waits += 1
        self._waiting[request.tenant] += 1
        self._thread.submit(number, request, room)
        return number

    def abort(self, request: RequestId) -> None:
        """See `TextEngine`."""
        if self._forget(request) is not None:
            self._thread.abort(request)

    def load(self) -> EngineLoad:
        """See `TextEngine`."""
        return replace(self._load, waiting=max(self._load.waiting, self._waits))  # some just came

    def stuck_for(self, patience: float) -> float | None:
        """See `TextEngine`; also how long every step has failed."""
        now = time.monotonic()
        return self._progress.stuck_for(now, patience) or self._health.failing_for(now)

    def _told(self, report: StepReport) -> None:
        """What the thread has to tell after a turn."""
        assert report.load is not None
        self._load = report.load
        for number in report.began:
            caller = self._callers.get(number)
            if caller is not None:
                self._waits_no_longer(caller)
        now = time.monotonic()
        self._pace.note(len(report.began), self._waits, now)
        for number, update in report.updates:
            self._deliver(number, update)
        if report.step is not None:
            self._health.note(failed=report.step.failed, now=now)
            self._meter.stepped(report.step)
        for facts in report.ended:
            self._meter.ended(facts)

    def _deliver(self, number: RequestId, update: Update) -> None:
        """To whoever still waits for it."""
        is_last = update.summary is not None or update.error is not None
        caller = self._forget(number) if is_last else self._callers.get(number)
        if caller is not None:
            caller.deliver(update)

    def _forget(self, number: RequestId) -> _Caller | None:
        caller = self._callers.pop(number, None)
        if caller is not None:
            self._waits_no_longer(caller)
        return caller

    def _waits_no_longer(self, caller: _Caller) -> None:
        if caller.waits:
            caller.waits = False
            self._waits -= 1
            self._waiting[caller.tenant] -= 1
            if not self._waiting[caller.tenant]:
                del self._waiting[caller.tenant]


def _closing() -> UnavailableError:
    return UnavailableError("the model is being unloaded", reason="CLOSING", retry_after=1.0)
