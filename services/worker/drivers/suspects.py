"""Requests that a worker which died was computing: they are computed in a child, where only the guilty one fails."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from services.rpc.errors import DeadlineExceededError, UnavailableError
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.batch import Answer
from services.worker.domain.infer_request import InferRequest
from services.worker.ports.flights import Flights, Rerun, Reruns
from services.worker.ports.gate import Deliver


@dataclass(slots=True, eq=False)
class Suspect:
    """One request in line."""

    request: InferRequest
    deadline: float | None
    deliver: Deliver | None  # None: the caller has gone

    def end(self, answer: Answer) -> None:
        """Tell the caller, once; nothing if it has been told or has gone."""
        deliver, self.deliver = self.deliver, None
        if deliver is not None:
            deliver(answer)

    def leave(self) -> None:
        """The caller has gone."""
        self.deliver = None


class Suspects:
    """Suspects of one version; one event loop only."""

    def __init__(self, spec: VersionSpec, folder: Path, flights: Flights, reruns: Reruns) -> None:
        """Assign only; `folder` has the version's files."""
        self._spec = spec
        self._folder = folder
        self._flights = flights
        self._reruns = reruns
        self._line: list[Suspect] = []
        self._computing: asyncio.Task[None] | None = None

    @property
    def is_alert(self) -> bool:
        """Whether each request is to be looked at."""
        return self._flights.is_alert

    def takes(self, request: InferRequest) -> bool:
        """Whether a request must not be computed in this process."""
        return self._flights.is_alert and self._flights.was_lost(request.feeds)

    def admit(self, request: InferRequest, deadline: float | None, deliver: Deliver) -> Suspect:
        """As `Gate.admit`."""
        suspect = Suspect(request, deadline, deliver)
        self._line.append(suspect)
        if self._computing is None or self._computing.done():
            self._computing = asyncio.create_task(self._compute())
        return suspect

    def close(self) -> None:
        """The version goes: who still waits is told."""
        if self._computing is not None:
            self._computing.cancel()
        line, self._line = self._line, []
        for one in line:
            one.end(_going())

    async def _compute(self) -> None:
        """All that wait, in one child, until nobody waits."""
        while self._line:
            line, self._line = self._alive(), []
            requests = [Rerun(one.request.feeds, one.request.outputs) for one in line]
            try:
                told = partial(_tell, line)
                await self._reruns.compute(self._spec, self._folder, requests, told)
            finally:
                for one in line:
                    one.end(_going())

    def _alive(self) -> list[Suspect]:
        now = time.monotonic()
        for one in self._line:
            if one.deadline is not None and one.deadline <= now:
                one.end(DeadlineExceededError("the deadline passed in the queue"))
        return [one for one in self._line if one.deliver is not None]


def _tell(line: Sequence[Suspect], index: int, answer: Answer) -> None:
    line[index].end(answer)


def _going() -> UnavailableError:
    return UnavailableError("the version is going", reason="VERSION_NOT_READY", retry_after=0.1)
