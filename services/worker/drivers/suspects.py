"""Requests that a worker which died was computing: they are computed in a child, where only the guilty one fails."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from services.rpc.errors import (
    DeadlineExceededError,
    InferplaneError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.batch import Answer
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.request_digest import RequestDigest, digest
from services.worker.ports.flights import MODEL_CRASHED, Flights, Rerun, Reruns
from services.worker.ports.gate import Deliver

_MOST_WAITING = 4096  # requests; and verdicts that are remembered


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
        self._line: dict[RequestDigest, list[Suspect]] = {}  # equal ones are computed once
        self._waiting = 0
        self._verdicts: dict[RequestDigest, InferplaneError | None] = {}  # None: innocent
        self._computing: asyncio.Task[None] | None = None

    @property
    def is_alert(self) -> bool:
        """Whether each request is to be looked at."""
        return self._flights.knows_guilty

    def takes(self, request: InferRequest) -> bool:
        """Whether a request must not be computed in this process."""
        # One that comes for the first time is no suspect: what many ask for would wait with it.
        flights = self._flights
        lost = request.retried and flights.was_lost(request.feeds)
        if not (lost or flights.knows_guilty):
            return False
        mark = self._mark(request)
        if mark in self._verdicts:
            return self._verdicts[mark] is not None
        return lost or flights.is_guilty(mark.hex())

    def admit(self, request: InferRequest, deadline: float | None, deliver: Deliver) -> Suspect:
        """As `Gate.admit`. Raises what is known of the request already."""
        mark = self._mark(request)
        verdict = self._verdicts.get(mark)
        if verdict is not None:
            raise verdict
        if self._waiting >= _MOST_WAITING:
            raise ResourceExhaustedError(
                f"{self._waiting} requests wait to be tried again; allowed: {_MOST_WAITING}",
                reason="QUEUE_FULL",
                retry_after=1.0,
            )
        suspect = Suspect(request, deadline, deliver)
        self._line.setdefault(mark, []).append(suspect)
        self._waiting += 1
        if self._computing is None or self._computing.done():
            self._computing = asyncio.create_task(self._compute())
        return suspect

    def close(self) -> None:
        """The version goes: who still waits is told."""
        if self._computing is not None:
            self._computing.cancel()
        _end_all(self._take())

    def _mark(self, request: InferRequest) -> RequestDigest:
        return digest(self._spec.digest, InferRequest(request.feeds, request.outputs))

    async def _compute(self) -> None:
        """All that wait, in one child, until nobody waits."""
        line: Mapping[RequestDigest, list[Suspect]] = {}
        try:
            while self._line:
                line = self._take()
                requests = [
                    Rerun(first.request.feeds, first.request.outputs) for first, *_ in line.values()
                ]
                told = partial(self._tell, list(line.items()))
                await self._reruns.compute(self._spec, self._folder, requests, told)
                _end_all(line)
        finally:  # also of those that came meanwhile
            _end_all(line)
            _end_all(self._take())

    def _take(self) -> dict[RequestDigest, list[Suspect]]:
        """Those in line for whom somebody still waits; the line is empty afterwards."""
        now = time.monotonic()
        line, self._line, self._waiting = self._line, {}, 0
        for one in (one for equal in line.values() for one in equal):
            if one.deadline is not None and one.deadline <= now:
                one.end(DeadlineExceededError("the deadline passed in the queue"))
        alive = {mark: [one for one in equal if one.deliver] for mark, equal in line.items()}
        return {mark: equal for mark, equal in alive.items() if equal}

    def _tell(
        self, line: Sequence[tuple[RequestDigest, list[Suspect]]], index: int, answer: Answer
    ) -> None:
        mark, equal = line[index]
        if len(self._verdicts) >= _MOST_WAITING:
            self._verdicts.clear()
        if isinstance(answer, InferplaneError) and answer.reason == MODEL_CRASHED:
            self._verdicts[mark] = answer
            self._flights.blame(mark.hex())
        elif not isinstance(answer, UnavailableError):
            self._verdicts[mark] = None
        for one in equal:
            one.end(answer)


def _end_all(line: Mapping[RequestDigest, list[Suspect]]) -> None:
    """Whoever has no answer is told so."""
    for equal in line.values():
        for one in equal:
            one.end(
                UnavailableError(
                    "the request could not be tried again",
                    reason="VERSION_NOT_READY",
                    retry_after=0.1,
                )
            )
