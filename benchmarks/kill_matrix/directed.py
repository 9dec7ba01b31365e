"""Kills at every moment of a call: each trial makes one call, holds the worker there, kills, and lets all go on."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from benchmarks.kill_matrix import verdict
from benchmarks.kill_matrix.calls import TINY, Call
from benchmarks.kill_matrix.gate import Gate
from benchmarks.kill_matrix.place import MODULES, WORKERS, Place, well
from benchmarks.kill_matrix.told_client import ToldClient
from benchmarks.kill_matrix.trials import TOKENS, Cell, Told, Trial
from tests.e2e.mesh import Mesh, eventually

_PATIENCE_SECONDS = 120.0
_TRIES = 20  # of a call that finds nobody yet
_OPEN = "inferplane_usage_open_requests "


class Directed:
    """Makes trials, one after the other."""

    def __init__(self, mesh: Mesh, place: Place, gate: Gate) -> None:
        """Assign only."""
        self._mesh = mesh
        self._place = place
        self._gate = gate
        self._client = ToldClient(mesh)
        self._random = random.Random(1)
        self._next = 0
        self._trials: list[Told] = []
        self.kills: Counter[str] = Counter()

    def run(self, trials: Sequence[Trial]) -> None:
        """All of them."""
        begin = time.monotonic()
        try:
            for index, trial in enumerate(trials):
                self._run(trial)
                if index % 20 == 0:
                    print(f"{time.monotonic() - begin:6.0f} s, trial {index}: {trial}", flush=True)
            self._rest()
        finally:
            self._client.kill()

    @property
    def sent(self) -> dict[int, verdict.Sent]:
        """All calls, also those that found nobody."""
        return self._client.sent

    def cells(self) -> list[Cell]:
        """What became of each."""
        sent, stored = self.sent, verdict.read_stored(self._place.database)
        found = []
        for told in self._trials:
            one = sent.get(told.number)
            found.append(Cell(told, one, None if one is None else stored.get(one.row)))
        return found

    def _run(self, trial: Trial) -> None:
        for _ in range(_TRIES):
            self._client.ready()
            self._rest()
            self._recover(trial.victim)
            first, number = self._place.accepted, self._next
            self._next += 1
            came = self._call(trial, Call(number, trial.kind, TOKENS))
            self._gate.open()
            if came:
                self._finish(trial, number, first)
                return
        raise AssertionError(f"no call comes as far as that: {trial}")

    def _call(self, trial: Trial, call: Call) -> bool:
        """Whether somebody was killed at the moment that is meant."""
        if trial.stage == "before":
            self._gate.arm("")
            self._kill(trial.victim)
            if trial.victim != "client":
                self._client.make(call)
            return True
        self._arm(trial)
        self._client.make(call)
        if trial.chunks is not None:
            came = self._come_to_chunk(call.number, trial.chunks)
        else:
            came = self._come_to_stage(trial.stage, call)
        if came:
            self._kill(trial.victim)
        return came

    def _arm(self, trial: Trial) -> None:
        if trial.chunks is not None:
            self._gate.arm("step")
        elif trial.stage == "compute" and trial.kind.model == TINY:
            self._gate.arm("step", passing=TOKENS // 2)
        else:
            self._gate.arm(trial.stage)

    def _come_to_chunk(self, number: int, chunks: int) -> bool:
        """Each token is computed once the one before has been received."""
        for chunk in range(chunks):
            if not self._until(number, lambda: self._gate.holds):
                return False
            self._gate.let()
            if not self._until(number, lambda got=chunk + 1: self._received(number) >= got):  # type: ignore[misc] # a default that binds
                return False
        return chunks == TOKENS or self._until(number, lambda: self._gate.holds)

    def _come_to_stage(self, stage: str, call: Call) -> bool:
        """Where the row waits, the caller has its answer first."""
        if stage not in ("unsent", "stored"):
            return self._until(call.number, lambda: self._gate.holds)
        self._eventually(lambda: self._client.has_ended(call.number), "the call has ended")
        if self.sent[call.number].end != "OK":
            return False
        self._eventually(lambda: self._gate.holds, f"a row is {stage}")
        while stage == "stored" and not self._is_stored(call):  # it was another's
            self._gate.let()
            self._eventually(lambda: self._gate.holds, "the next row is stored")
        return True

    def _is_stored(self, call: Call) -> bool:
        return (call.kind.model, call.size()) in verdict.read_stored(self._place.database)

    def _received(self, number: int) -> int:
        sent = self.sent.get(number)
        return 0 if sent is None else sent.tokens

    def _until(self, number: int, holds: Callable[[], bool]) -> bool:
        """Whether something comes to hold before the call ends."""
        self._eventually(lambda: holds() or self._client.has_ended(number), "the call goes on")
        return holds()

    def _kill(self, victim: str) -> None:
        self.kills[victim] += 1
        if victim == "client":
            self._client.kill()
            return
        found = self._mesh.processes(MODULES[victim])
        if victim == "worker" and self._gate.worker:
            found = [process for process in found if process.pid == self._gate.worker]
        assert found, f"no {victim} runs"
        with suppress(psutil.NoSuchProcess):
            self._random.choice(found).kill()

    def _finish(self, trial: Trial, number: int, first: int) -> None:
        if trial.victim != "client":
            self._eventually(lambda: self._client.has_ended(number), "the call has ended")
        self._rest()
        self._trials.append(Told(trial, number, verdict.read_audit(self._place.audit, first)))

    def _recover(self, victim: str) -> None:
        """Whoever is needed is there again."""
        for module in MODULES.values():
            self._eventually(lambda of=module: bool(self._mesh.processes(of)), f"{module} runs")  # type: ignore[misc] # a default that binds
        needed = WORKERS if victim in ("worker", "envoy") else 1
        self._eventually(lambda: well(self._mesh) >= needed, f"{needed} workers are well")

    def _rest(self) -> None:
        """No worker has a request open, so the next is alone."""
        self._eventually(self._is_at_rest, "no request is open")

    def _is_at_rest(self) -> bool:
        """Of those who answer: who died has none, and who begins has none yet."""
        try:
            told = self._mesh.metrics("worker")
        except OSError:
            return False
        lines = [line for text in told for line in text.splitlines() if line.startswith(_OPEN)]
        return all(float(line.removeprefix(_OPEN)) == 0 for line in lines)

    def _eventually(self, question: Callable[[], bool], what: str) -> None:
        eventually(question, seconds=_PATIENCE_SECONDS, what=what)
