"""A whole `up` whose processes are killed while calls run: is each accepted request counted once, as it was delivered?

Run: .venv/bin/python -m benchmarks.kill_matrix [--requests 300] [--at-once 8] [--every 30] [--seed 1]

Callers, workers, Envoy and metering die by SIGKILL in random order, each time after some more answers, at any moment,
while a third of the calls are tensors, a third texts and a third streams. Calls that find nobody are not counted among
the requests. Then everything is left alone until no outbox holds a row, and it is asked:

- has each request that was answered exactly one row that counts, and each other at most one;
- are there as many rows as workers have accepted requests, by a second count that they keep for this (one more for each
  worker that was killed between the two counts at most);
- did each caller get no more tokens than are counted, and were no more counted than handed out;
- does the ledger verify, and does no budget hold anything.

Ends with 1, and says why, if not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.kill_matrix import verdict
from benchmarks.kill_matrix.client import TENSOR, TEXT
from tests.e2e.mesh import ROOT, Mesh, eventually, running
from tests.models import good
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

_MODULES = {"worker": "services.worker", "envoy": "envoy", "metering": "services.metering"}
_AUDIT = Path(__file__).with_name("audit")
_WORKERS = 2
_PATIENCE_SECONDS = 240.0
_REST_SECONDS = 180.0  # until all rows have arrived
_QUIET_SECONDS = 12.0  # in which none comes: longer than between looks for outboxes of the dead


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for."""

    requests: int
    at_once: int
    every: float  # answers between kills, about
    seed: int


@dataclass(frozen=True, slots=True)
class Place:
    """Files of one run."""

    folder: Path

    @property
    def log(self) -> Path:
        """Of the callers."""
        return self.folder / "callers.log"

    @property
    def audit(self) -> Path:
        """Of the workers."""
        return self.folder / "audit.log"

    @property
    def database(self) -> Path:
        """Metering's."""
        return self.folder / "state" / "metering" / "metering.db"


class Killer:
    """Lets callers run, and kills."""

    def __init__(self, mesh: Mesh, place: Place, plan: Plan) -> None:
        self._mesh = mesh
        self._place = place
        self._plan = plan
        self._random = random.Random(plan.seed)
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
        plan = self._plan
        numbers = (str(first), str(plan.at_once))
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
            found = self._mesh.processes(_MODULES[victim])
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
            time.sleep(0.05)
        return True

    def _answers(self) -> int:
        """How many callers have seen."""
        log = self._place.log
        return log.read_bytes().count(b'"OK"') if log.exists() else 0

    def _after(self) -> int:
        """The number after the last that was sent."""
        sent = verdict.read_sent(self._place.log) if self._place.log.exists() else {}
        return max(sent, default=-1) + 1


def deploy(mesh: Mesh, folder: Path) -> None:
    """Both models, a budget that binds nobody, and everything well."""
    (folder / "affine.onnx").write_bytes(good.affine(2.0))
    write_tiny(folder / "tiny.gguf", Tiny(context=1024))
    for name, file in ((TENSOR, "affine.onnx"), (TEXT, "tiny.gguf")):
        mesh.cli("models", "push", name, str(folder / file))
        mesh.cli("deploy", f"{name}@1")
        version = f"models/{name}/versions/1"
        eventually(lambda of=version: mesh.well(of) == _WORKERS, seconds=120, what=version)  # type: ignore[misc] # a default that binds


def settle(place: Place) -> None:
    """Wait until all rows have arrived: no outbox of a dead worker is left, and none comes any more."""
    end, before, since = time.monotonic() + _REST_SECONDS, (-1, -1), 0.0
    while time.monotonic() < end:
        outboxes = len(list((place.folder / "state" / "usage").glob("*/lock")))
        found = (verdict.count_rows(place.database), outboxes)
        if found != before or outboxes > _WORKERS:
            before, since = found, time.monotonic()
        elif time.monotonic() - since > _QUIET_SECONDS:
            return
        time.sleep(0.5)
    raise AssertionError(f"rows still come after {_REST_SECONDS} s")


def judge(mesh: Mesh, place: Place, kills: Counter[str]) -> list[str]:
    """What is not as promised; prints the figures."""
    sent, stored = verdict.read_sent(place.log), verdict.read_stored(place.database)
    audit = verdict.read_audit(place.audit)
    rows = sum(len(one.outcomes) for one in stored.values())
    ends = Counter(one.end for one in sent.values())
    outcomes = Counter(one.outcome for one in stored.values())
    print(f"killed: {dict(kills)}")
    print(f"requests sent: {len(sent)}, as their callers saw them end: {dict(ends)}")
    print(f"accepted by workers: {audit.accepted}; rows: {rows}; requests counted: {len(stored)}")
    print(
        f"requests by outcome (1 ok, 2 failed, 3 cancelled, 4 deadline, 5 aborted): {dict(outcomes)}"
    )
    tokens = sum(one.tokens for one in stored.values())
    received = sum(one.tokens for one in sent.values())
    print(f"tokens received: {received} <= counted: {tokens} <= handed out: {audit.tokens}")
    found = verdict.problems(sent, stored, audit, kills)
    verified = mesh.cli("ledger", "verify", check=False)
    print(verified.stdout.strip())
    if verified.returncode:
        found.append(f"the ledger does not verify: {verified.stderr}")
    return found


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--every", type=float, default=30, help="answers between kills, about")
    parser.add_argument("--seed", type=int, default=1)
    plan = Plan(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        place = Place(Path(name))
        os.environ["KILL_MATRIX_AUDIT"] = str(place.audit)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            (str(_AUDIT), str(ROOT), str(ROOT / "generated"))
        )
        with running(place.folder / "state", workers=_WORKERS) as mesh:
            deploy(mesh, place.folder)
            killer = Killer(mesh, place, plan)
            begin = time.monotonic()
            killer.run()
            print(f"called for {time.monotonic() - begin:.0f} s", flush=True)
            settle(place)
            found = judge(mesh, place, killer.kills)
    for problem in found[:50]:
        print(f"WRONG: {problem}")
    print(json.dumps({"requests": plan.requests, "kills": killer.kills, "wrong": len(found)}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
