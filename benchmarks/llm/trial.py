"""One contender from its start to its end: first token, check of its texts, scenarios, memory."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.llm import scenario
from benchmarks.llm.call import Asked
from benchmarks.llm.contender import Contender
from benchmarks.llm.figures import Figures, figures, middle
from benchmarks.llm.load import Load, run
from benchmarks.llm.prompts import Text
from benchmarks.llm.reference import Reference
from benchmarks.serving.contender import Running
from benchmarks.serving.environments import InstallError
from benchmarks.serving.process_tree import Memory

_LONGEST_START = 120.0  # seconds to the first token
_LOOK = 0.02  # seconds between tries
_SAMPLES = 0.5  # seconds between looks at the engine's gauges
_SUMS = ("_total", "_sum", "_count")  # of names that only grow


class TrialError(Exception):
    """A contender can't be measured; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What everybody goes through."""

    scenarios: tuple[str, ...]
    rounds: int  # of each; the one of median rate counts
    arriving: int  # calls of the open loop; 0: none
    starts: int = 2  # the last one is timed


@dataclass(slots=True, kw_only=True)
class Report:
    """What one contender did."""

    name: str
    variant: str
    title: str
    what: str
    reason: str = ""  # why figures are missing; empty: none are
    first_token: float = 0.0  # seconds from the command
    memory: Memory | None = None
    check: str = ""
    points: dict[str, Figures] = field(default_factory=dict)  # by scenario
    counters: dict[str, dict[str, float]] = field(default_factory=dict)  # by scenario


@dataclass(frozen=True, slots=True)
class Trial:
    """A contender against the scenarios."""

    contender: Contender
    text: Text
    reference: Reference | None  # None: only the number of tokens is checked
    plan: Plan

    def run(self) -> Report:
        """All of it; what goes wrong is in the report."""
        one = self.contender
        report = Report(name=one.name, variant=one.variant, title=one.title, what=one.what)
        try:
            one.before()
            for left in reversed(range(self.plan.starts)):
                with tempfile.TemporaryDirectory(prefix="ip-b-") as folder:
                    self._life(Path(folder), report, is_last=not left)
        except (TrialError, InstallError, OSError, subprocess.SubprocessError) as error:
            report.reason = f"{type(error).__name__}: {error}" if not str(error) else str(error)
        return report

    def _life(self, folder: Path, report: Report, *, is_last: bool) -> None:
        running = self.contender.start(folder)
        try:
            report.first_token = (self.contender.first_token or first_token)(running)
            if exposed := running.exposed():
                raise TrialError(f"it listens beyond loopback: {', '.join(exposed)}")
            chosen = [n for n in self.plan.scenarios if n in (self.contender.scenarios or (n,))]
            if is_last and chosen:
                self._check(running, report)
                for name in chosen:
                    self._scenario(running, name, report)
            report.memory = running.memory()
        finally:
            running.stop()

    def _check(self, running: Running, report: Report) -> None:
        """Warms it, too."""
        faults = [one.fault() for one in run(running.address, scenario.warming(self.text))]
        if any(faults):
            raise TrialError(f"{running.dead()} {faults}")
        if self.reference is None:
            report.check = "number of tokens only: no reference"
            return
        texts = run(running.address, Load(asked=self.reference.asked, concurrency=4))
        report.check, is_right = self.reference.judge([one.text for one in texts])
        if not is_right:
            raise TrialError(f"check failed: {report.check}")

    def _scenario(self, running: Running, name: str, report: Report) -> None:
        chosen = scenario.SCENARIOS[name]
        rounds = []
        with self._counted(running) as counted:
            for number in range(self.plan.rounds):
                load = chosen.load(self.text, number)
                rounds.append(figures(name, run(running.address, load)))
        report.counters[name] = counted
        report.points[name] = closed = middle(rounds)
        self._judge(running, closed)
        if name == "D" and self.plan.arriving:
            per_second = scenario.SHARE * closed.call_rate
            load = scenario.arriving(self.text, self.plan.arriving, per_second)
            opened = figures("D open", run(running.address, load), offered=per_second)
            report.points["D open"] = opened
            self._judge(running, opened)

    def _judge(self, running: Running, point: Figures) -> None:
        if dead := running.dead():
            raise TrialError(dead)
        if point.faults:
            told = ", ".join(point.faults[:3])
            raise TrialError(f"scenario {point.scenario}: {len(point.faults)} calls failed: {told}")

    @contextmanager
    def _counted(self, running: Running) -> Iterator[dict[str, float]]:
        """By how much sums grew meanwhile, and what gauges were on average while it was busy."""
        counted: dict[str, float] = {}
        before = dict(self.contender.counters(running))
        gauges = Gauges(self.contender, running)
        if before:
            gauges.start()
        yield counted
        gauges.stop()
        for name, value in self.contender.counters(running).items():
            if name.endswith(_SUMS):
                counted[name] = value - before.get(name, 0.0)
        counted.update(gauges.means())


class Gauges:
    """Looks at an engine's gauges now and then, in a thread of its own."""

    def __init__(self, contender: Contender, running: Running) -> None:
        self._contender, self._running = contender, running
        self._seen: list[Mapping[str, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def means(self) -> dict[str, float]:
        """Of what was seen while something ran."""
        busy = [seen for seen in self._seen if seen.get("vllm:num_requests_running")]
        names = {name for seen in busy for name in seen if not name.endswith(_SUMS)}
        return {name: sum(seen.get(name, 0.0) for seen in busy) / len(busy) for name in names}

    def _look(self) -> None:
        while not self._ended.wait(_SAMPLES):
            with suppress(OSError):
                self._seen.append(self._contender.counters(self._running))


def first_token(running: Running) -> float:
    """Seconds from the command to the first text, asked for until it comes."""
    asked = Asked(prompt="The", prompt_tokens=1, max_tokens=1)
    last = ""
    while True:
        with suppress(OSError):  # not yet listening
            (answer,) = run(running.address, Load(asked=(asked,), concurrency=1))
            if not answer.fault():
                return answer.pieces[0] - running.started
            last = answer.fault()
        if dead := running.dead():
            raise TrialError(dead)
        if time.perf_counter() - running.started > _LONGEST_START:
            raise TrialError(f"no token within {_LONGEST_START:.0f} s: {last}")
        time.sleep(_LOOK)  # another process's readiness cannot be waited on


def named(reports: Sequence[Report], name: str, variant: str = "") -> list[Report]:
    """Those of a server, of all its settings or one, that have figures."""
    return [
        report
        for report in reports
        if report.name == name and variant in ("", report.variant) and not report.reason
    ]
