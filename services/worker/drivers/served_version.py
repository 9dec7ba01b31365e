"""A version that answers calls: its signature, its way to the session, what is counted of it."""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace

from services.rpc.errors import InferplaneError
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.batch import Answer
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.batcher import Batcher
from services.worker.drivers.call_outcome import call_outcome
from services.worker.drivers.suspects import Suspect, Suspects
from services.worker.drivers.tab import NO_TAB, AnyTab, CallMark
from services.worker.drivers.traffic import Traffic
from services.worker.drivers.version_usage import NO_USAGE, AnyUsage
from services.worker.ports.allowance import Need
from services.worker.ports.gate import Deliver, Gate, Ticket


@dataclass(frozen=True, slots=True, eq=False)
class ServedVersion:
    """What servicers need of a loaded version; equal only to itself."""

    spec: VersionSpec
    batcher: Batcher
    gate: Gate  # where requests go in: the batcher, or what stands before it
    statistics: VersionStatistics
    traffic: Traffic
    suspects: Suspects | None = None  # where requests go that a worker may have died of
    usage: AnyUsage = NO_USAGE

    @property
    def is_plain(self) -> bool:
        """Whether nothing stands before the batcher."""
        is_alert = self.suspects is not None and self.suspects.is_alert
        return self.gate is self.batcher and not is_alert

    def enter(self, request: InferRequest, mark: CallMark) -> AnyTab | Awaitable[AnyTab]:
        """Count a request from now on; `enter` of `VersionUsage`."""
        if not self.usage.is_counted:
            return NO_TAB
        return self.usage.enter(mark, Need(rows=self.batcher.rows(request)))

    def admit(self, request: InferRequest, deadline: float | None, deliver: Deliver) -> Ticket:
        """Take a request in, as `Gate.admit` says."""
        if self.suspects is not None and self.suspects.takes(request):
            return self.suspects.admit(request, deadline, deliver)
        return self.gate.admit(request, deadline, deliver)

    def leave(self, ticket: Ticket) -> None:
        """The caller has gone."""
        if isinstance(ticket, Suspect):
            ticket.leave()
        else:
            self.gate.leave(ticket)

    async def infer(
        self, request: InferRequest, deadline: float | None, tab: AnyTab = NO_TAB
    ) -> Mapping[str, Array]:
        """Outputs of one checked request, which runs up this tab; refused at the door it has none."""
        answered: asyncio.Future[Mapping[str, Array]] = asyncio.get_running_loop().create_future()

        def deliver(answer: Answer) -> None:
            if answered.done():  # cancelled; `leave` follows
                return
            if isinstance(answer, InferplaneError):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)

        if tab.use is not None:
            request = replace(request, use=tab.use)
        try:
            ticket = self.admit(request, deadline, deliver)
        except InferplaneError:
            tab.refuse()
            raise
        try:
            return await answered
        finally:  # also when the caller has gone
            self.leave(ticket)

    def measured(self) -> "_Measured":
        """`with version.measured():` around all of a call counts and times it, however it ends."""
        return _Measured(self)

    def begin(self) -> float:
        """A call begins; give what this returns to `end`."""
        self.traffic.begin()
        return time.monotonic()

    def end(self, started: float, error: BaseException | None) -> None:
        """The call ended: with an answer, or with this error."""
        self.traffic.end()
        self.statistics.called(call_outcome(error), time.monotonic() - started)

    def end_many(self, started: Sequence[float], now: float) -> None:
        """Several calls ended with an answer."""
        self.traffic.end_many(len(started))
        self.statistics.answered([now - moment for moment in started])


class _Measured:
    """Counts one call; a plain class, since a generator costs more on each call."""

    __slots__ = ("_started", "_version")

    def __init__(self, version: ServedVersion) -> None:
        self._version = version

    def __enter__(self) -> None:
        self._started = self._version.begin()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._version.end(self._started, error)
