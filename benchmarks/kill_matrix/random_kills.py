"""Kills at any moment of many calls at once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import psutil

from benchmarks.kill_matrix import verdict
from benchmarks.kill_matrix.place import MODULES, Place
from tests.e2e.mesh import ROOT, Mesh

_PATIENCE_SECONDS = 240.0
_TOLD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for."""

    requests: int
    at_once: int
    every: float  # answers between kills, about
    seed: int


class Killer:
    """Lets callers run, and kills."""

    def __init__(self, mesh: Mesh, place: Place, plan: Plan) -> None:
        self._mesh = mesh
        self._place = place
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._told = time.monotonic()
        self.kills: Counter[str] = Counter()

    def run(self) -> None:
        """Until all requests were sent."""
        following = 0
        while self._answers() < self._plan.requests:
            process = self._start(following)
            try:
                self._while_running(process)
            finally:
                process.kill()
                process.wait()
            following = self._after()

    def _start(self, first: int) -> subprocess.Popen[bytes]:
        numbers = ("--first", str(first), "--at-once", str(self._plan.at_once))
        where = (self._mesh.address, self._mesh.token, str(self._place.log))
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.kill_matrix.client", *where, *numbers], cwd=ROOT
        )

    def _while_running(self, callers: subprocess.Popen[bytes]) -> None:
        while self._wait(self._plan.every * self._random.uniform(0.1, 1.9)):
            assert callers.poll() is None, "the callers ended by themselves"
            time.sleep(self._random.uniform(0, 0.05))  # at any moment of a call
            victim = self._random.choice(["worker", "worker", "envoy", "metering", "client"])
            self.kills[victim] += 1
            if victim == "client":
                return
            found = self._mesh.processes(MODULES[victim])
            if found:
                with suppress(psutil.NoSuchProcess):
                    self._random.choice(found).kill()

    def _wait(self, answers: float) -> bool:
        """Until there are so many more; whether any are still wanted."""
        before, begin = self._answers(), time.monotonic()
        while (now := self._answers()) < before + answers:
            if now >= self._plan.requests:
                return False
            if time.monotonic() - begin > _PATIENCE_SECONDS:
                raise AssertionError(f"no {answers:.0f} answers in {_PATIENCE_SECONDS} s")
            if time.monotonic() - self._told > _TOLD_SECONDS:
                self._told = time.monotonic()
                print(f"{now} answers, killed: {dict(self.kills)}", flush=True)
            time.sleep(0.05)  # between two looks at a file
        return True

    def _answers(self) -> int:
        """How many callers have seen."""
        log = self._place.log
        return log.read_bytes().count(b'"OK"') if log.exists() else 0

    def _after(self) -> int:
        """The number after the last that was sent."""
        sent = verdict.read_sent(self._place.log) if self._place.log.exists() else {}
        return max(sent, default=-1) + 1
