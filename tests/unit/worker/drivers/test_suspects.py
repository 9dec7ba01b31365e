"""Requests that a worker may have died of: each ends once, the guilty one as its own fault."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.rpc.errors import (
    DeadlineExceededError,
    InferplaneError,
    InvalidArgumentError,
    UnavailableError,
)
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.batch import Answer
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.drivers.suspects import Suspects
from services.worker.ports.flights import MODEL_CRASHED, Rerun, Told
from services.worker.ports.session import Session
from tests.models import good
from tests.unit.worker.specs import spec_of_model

SPEC = spec_of_model(good.affine(2.0))
GUILTY = 13
BLAMED: set[str] = set()  # by all workers


class Alert:
    """A worker died with everything."""

    knows_guilty = True

    def recorded(self, session: Session) -> Session:
        return session

    def look(self) -> bool:
        return False

    def was_lost(self, feeds: Mapping[str, Array]) -> bool:
        return True

    def blame(self, mark: str) -> None:
        BLAMED.add(mark)

    def is_guilty(self, mark: str) -> bool:
        return mark in BLAMED


class Scripted:
    """Reruns that find 13 guilty, once they may go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.rounds: list[int] = []

    async def compute(
        self, spec: VersionSpec, folder: Path, requests: Sequence[Rerun], told: Told
    ) -> None:
        self.rounds.append(len(requests))
        await self.go.wait()
        for index, request in enumerate(requests):
            value = int(request.feeds["x"][0])
            error = InvalidArgumentError("crashes", reason=MODEL_CRASHED)
            told(index, error if value == GUILTY else {"y": request.feeds["x"] * 2})


def request(value: int) -> InferRequest:
    return InferRequest({"x": np.array([value])}, ("y",), retried=True)


def room(reruns: Any) -> Suspects:
    return Suspects(SPEC, Path("/nowhere"), Alert(), reruns)


async def test_only_the_guilty_one_fails() -> None:
    """Those that come meanwhile wait for the next round; who has gone or is late is not computed."""
    reruns, told = Scripted(), dict[int, Answer]()
    suspects = room(reruns)
    assert suspects.takes(request(1))
    for value in (1, GUILTY, 2):
        suspects.admit(request(value), None, lambda answer, v=value: told.__setitem__(v, answer))  # type: ignore[misc] # mypy can't infer lambdas with defaults
    await asyncio.sleep(0)
    gone = suspects.admit(request(3), None, lambda answer: told.__setitem__(3, answer))
    gone.leave()
    suspects.admit(request(4), 0.0, lambda answer: told.__setitem__(4, answer))
    suspects.admit(request(5), None, lambda answer: told.__setitem__(5, answer))
    reruns.go.set()
    assert suspects._computing is not None
    await suspects._computing
    assert reruns.rounds == [3, 1]
    values = {key: int(a["y"][0]) for key, a in told.items() if not isinstance(a, InferplaneError)}
    assert values == {1: 2, 2: 4, 5: 10}
    assert isinstance(told[GUILTY], InvalidArgumentError)
    assert isinstance(told[4], DeadlineExceededError)
    assert 3 not in told


async def test_who_waits_when_the_version_goes_is_told() -> None:
    """Once, so that it may be tried elsewhere."""
    reruns, told = Scripted(), list[Answer]()
    suspects = room(reruns)
    suspects.admit(request(1), None, told.append)
    await asyncio.sleep(0)
    suspects.admit(request(2), None, told.append)
    suspects.close()
    assert suspects._computing is not None
    await asyncio.wait([suspects._computing])
    assert [type(answer) for answer in told] == [UnavailableError, UnavailableError]


class Broken(Scripted):
    """No child can be started."""

    async def compute(
        self, spec: VersionSpec, folder: Path, requests: Sequence[Rerun], told: Told
    ) -> None:
        await self.go.wait()
        raise OSError("no processes")


async def test_nobody_waits_for_a_child_that_cannot_be_started() -> None:
    """Not those that came meanwhile either."""
    reruns, told = Broken(), list[Answer]()
    suspects = room(reruns)
    suspects.admit(request(1), None, told.append)
    await asyncio.sleep(0)
    suspects.admit(request(2), None, told.append)
    reruns.go.set()
    assert suspects._computing is not None
    await asyncio.wait([suspects._computing])
    assert isinstance(suspects._computing.exception(), OSError)
    assert [type(answer) for answer in told] == [UnavailableError, UnavailableError]


async def test_what_was_found_once_is_known() -> None:
    """Equal requests are computed once; the innocent one is no suspect any more, the guilty one is refused at once."""
    reruns, told = Scripted(), list[Answer]()
    reruns.go.set()
    suspects = room(reruns)
    for value in (1, 1, GUILTY, 1, GUILTY):
        suspects.admit(request(value), None, told.append)
    assert suspects._computing is not None
    await suspects._computing
    assert reruns.rounds == [2]
    assert len(told) == 5
    assert not suspects.takes(request(1))
    assert suspects.takes(request(GUILTY))
    with pytest.raises(InvalidArgumentError, match="crashes"):
        suspects.admit(request(GUILTY), None, told.append)
    assert suspects.takes(request(2))
    assert len(told) == 5
    another = room(reruns)  # of another worker
    assert another.takes(replace(request(GUILTY), retried=False))
    assert not another.takes(replace(request(2), retried=False))


async def test_while_nobody_is_guilty_first_ones_are_not_looked_at() -> None:
    """They take the shortest way, whatever died; one that comes again doesn't."""
    flights = Alert()
    flights.knows_guilty = False
    suspects = Suspects(SPEC, Path("/nowhere"), flights, Scripted())
    assert not suspects.is_alert
    assert not suspects.takes(replace(request(GUILTY), retried=False))
    assert suspects.takes(request(GUILTY))
