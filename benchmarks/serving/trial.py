"""One contender from its start to its end: first answer, check, loads, memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.generator.load import run
from benchmarks.generator.order import Order, Result
from benchmarks.serving.contender import ROOT, Contender, Running, own_environment
from benchmarks.serving.environments import InstallError
from benchmarks.serving.process_tree import Memory
from benchmarks.serving.workload import Array, Workload

_LONGEST_START = 120.0  # seconds to the first answer
_LOOK = 0.004  # seconds between tries to get it
_ONE_TRY = 5.0
_TOGETHER = 32  # calls in flight when concurrent answers are checked
_CHECKED = 256


class TrialError(Exception):
    """Why a contender has no figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every contender goes through."""

    in_flight: dict[str, tuple[int, ...]]  # closed loops, by model
    rates: dict[str, float]  # open loop, calls per second by model; empty: none
    seconds: dict[str, float]  # timed of each load, by model
    warm_seconds: float
    starts: int  # the last one is timed


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One load on one model."""

    model: str
    in_flight: int  # 0: open loop
    offered: float  # calls per second; 0: closed loop
    result: Result
    wrong: int  # of the kept answers
    kept: int
    cpu: dict[str, float]  # µs a request by process name

    @property
    def cpu_per_request(self) -> float:
        """Of all the server's processes."""
        return sum(self.cpu.values())

    @property
    def cpu_of_generator(self) -> float:
        """µs a request."""
        return self.result.per_call(self.result.generator_cpu)

    @property
    def others(self) -> float:
        """Cores that neither server nor generator used."""
        return self.result.others_cpu / self.result.seconds if self.result.seconds else 0.0


@dataclass(slots=True, kw_only=True)
class Report:
    """What one contender did."""

    name: str
    variant: str
    what: str
    reason: str = ""  # why figures are missing; empty: none are
    first_answer: float = 0.0  # seconds from the command to answers of all models
    memory: Memory | None = None
    checks: list[str] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name} / {self.variant}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A contender against the workloads."""

    contender: Contender
    workloads: Sequence[Workload]
    plan: Plan

    def run(self) -> Report:
        """All of it; what goes wrong is in the report."""
        one = self.contender
        report = Report(name=one.name, variant=one.variant, what=one.what)
        try:
            one.before()
            for number in range(self.plan.starts):
                with tempfile.TemporaryDirectory(prefix="ip-b-") as folder:
                    self._life(Path(folder), report, is_last=number == self.plan.starts - 1)
        except (TrialError, InstallError, OSError, subprocess.SubprocessError) as error:
            report.reason = f"{type(error).__name__}: {error}" if not str(error) else str(error)
        return report

    def _life(self, folder: Path, report: Report, *, is_last: bool) -> None:
        running = self.contender.start(folder)
        try:
            report.first_answer = self._until_answers(running)
            if exposed := running.exposed():
                raise TrialError(f"it listens beyond loopback: {', '.join(exposed)}")
            if is_last:
                lengths = {w.name: self._check(running, w, report) for w in self.workloads}
                for workload in self.workloads:
                    self._load(folder, running, workload, lengths[workload.name], report)
                report.memory = running.memory()
                report.notes.update(self.contender.after(running))
        finally:
            running.stop()

    def _order(self, running: Running, workload: Workload, **more: Any) -> Order:
        dialect = self.contender.dialect
        numbers = range(len(workload.requests))
        given = {
            "protocol": dialect.protocol,
            "address": running.address,
            "path": dialect.path.format(model=workload.name),
            "bodies": tuple(dialect.encode(workload, number) for number in numbers),
            "content_type": dialect.content_type,
            **more,
        }
        return Order(**given)

    def _until_answers(self, running: Running) -> float:
        """Ask for each model until it is answered; seconds from the start."""
        for workload in self.workloads:
            order = self._order(running, workload, calls=1, timeout=_ONE_TRY, seconds=_ONE_TRY)
            last = ""
            while True:
                with suppress(OSError):  # not yet listening, or not yet answering
                    result = run(order)
                    if result.answers:
                        break
                    last = ", ".join(result.errors)
                if dead := running.dead():
                    raise TrialError(dead)
                if time.perf_counter() - running.started > _LONGEST_START:
                    raise TrialError(f"no answer within {_LONGEST_START:.0f} s: {last}")
                time.sleep(_LOOK)
        return time.perf_counter() - running.started

    def _check(self, running: Running, workload: Workload, report: Report) -> tuple[int, ...]:
        """Hold every answer against bare ONNX Runtime's; the lengths of right ones."""
        alone = self._order(running, workload, calls=len(workload.requests), keep=1 << 30)
        alone = replace(alone, seconds=60.0)
        result = run(alone)
        self._judge(workload, result, alone.calls, report, "one at a time")
        lengths = {kept.number: len(kept.body) for kept in result.kept}
        ordered = tuple(lengths[number] for number in sorted(lengths))
        if not self.contender.dialect.has_fixed_length:
            ordered = ()
        together = replace(alone, calls=_CHECKED, in_flight=_TOGETHER, lengths=ordered)
        self._judge(workload, run(together), _CHECKED, report, f"{_TOGETHER} at once")
        return ordered

    def _judge(
        self, workload: Workload, result: Result, calls: int, report: Report, how: str
    ) -> None:
        answers = self._decoded(result)
        wrong, control = workload.wrong(answers), workload.wrong(answers, shift=1)
        said = (
            f"{workload.name}, {how}: {len(answers)} of {calls} answered, {wrong} wrong;"
            f" control (others' answers): {control} of {len(answers)} flagged"
        )
        report.checks.append(said)
        if wrong or len(answers) != calls or control != len(answers):
            errors = f"; errors: {result.errors}" if result.errors else ""
            raise TrialError(f"check failed: {said}{errors}")

    def _decoded(self, result: Result) -> list[tuple[int, Array]]:
        return [(kept.number, self.contender.dialect.decode(kept.body)) for kept in result.kept]

    def _load(
        self,
        folder: Path,
        running: Running,
        workload: Workload,
        lengths: tuple[int, ...],
        report: Report,
    ) -> None:
        plan = self.plan
        order = self._order(
            running,
            workload,
            lengths=lengths,
            seconds=plan.seconds[workload.name],
            warm_seconds=plan.warm_seconds,
        )
        for in_flight in plan.in_flight[workload.name]:
            order_ = replace(order, in_flight=in_flight)
            report.points.append(self._point(folder, running, workload, order_))
        if rate := plan.rates.get(workload.name):
            order_ = replace(order, in_flight=512, connections=0, rate=rate)
            if order.protocol == "http":
                order_ = replace(order_, connections=128)
            report.points.append(self._point(folder, running, workload, order_))

    def _point(self, folder: Path, running: Running, workload: Workload, order: Order) -> Point:
        names = running.names()
        result = in_own_process(folder, replace(order, pids=tuple(names)))
        if dead := running.dead():
            raise TrialError(dead)
        cpu: dict[str, float] = {}
        for pid, seconds in result.server_cpu.items():
            name = names[int(pid)]
            cpu[name] = cpu.get(name, 0.0) + result.per_call(seconds)
        answers = self._decoded(result)
        return Point(
            model=workload.name,
            in_flight=0 if order.rate else order.in_flight,
            offered=order.rate,
            result=replace(result, kept=()),
            wrong=workload.wrong(answers),
            kept=len(answers),
            cpu=cpu,
        )


def in_own_process(folder: Path, order: Order) -> Result:
    """Run the generator apart, so that nothing else of ours is in its time."""
    ordered, told = folder / "order.json", folder / "result.json"
    ordered.write_text(order.as_json())
    command = [sys.executable, "-m", "benchmarks.generator", str(ordered), str(told)]
    limit = order.seconds + order.warm_seconds + 3 * order.timeout
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=own_environment(),
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    if done.returncode:
        raise TrialError(f"the generator ended: {done.stderr.strip().splitlines()[-1:]}")
    return Result.of_json(told.read_text())
