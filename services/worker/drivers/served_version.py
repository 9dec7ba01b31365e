"""A version that answers calls: its signature, its way to the session, its counters."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from services.rpc.errors import InferplaneError
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.contents import Array
from services.worker.domain.counters import Counters, Outcome, outcome_of
from services.worker.domain.infer_request import InferRequest
from services.worker.drivers.batcher import Batcher
from services.worker.drivers.traffic import Traffic
from services.worker.ports.meter import VersionMeter


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """What servicers need of a loaded version."""

    spec: VersionSpec
    batcher: Batcher
    meter: VersionMeter
    counters: Counters
    traffic: Traffic

    async def infer(self, request: InferRequest, deadline: float | None) -> Mapping[str, Array]:
        """Outputs of one checked request."""
        return await self.batcher.submit(request, deadline)

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
        seconds = time.monotonic() - started
        outcome = Outcome.FAILED
        if error is None:
            outcome = Outcome.SUCCEEDED
        elif isinstance(error, InferplaneError):
            outcome = outcome_of(error.kind)
        elif isinstance(error, asyncio.CancelledError):
            outcome = Outcome.CANCELLED
        self.counters.count(outcome, seconds)
        self.meter.called(outcome, seconds)


class _Measured:
    """Counts one call; a plain class, since a generator costs more on each call."""

    __slots__ = ("_started", "_version")

    def __init__(self, version: ServedVersion) -> None:
        self._version = version

    def __enter__(self) -> None:
        self._started = self._version.begin()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._version.end(self._started, error)
