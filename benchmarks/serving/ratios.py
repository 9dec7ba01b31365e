"""The level that was set, each line of it as a ratio or a bound, from one run's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.serving.trial import Point, Report

Value = Callable[[Point], float]


def _rate(point: Point) -> float:
    return point.result.rate


def _p50_rate(point: Point) -> float:
    """Turned round, so that more is better."""
    return 1.0 / point.result.p50 if point.result.p50 else 0.0


def _per_cpu(point: Point) -> float:
    """Requests for a second of CPU time; hardly moved by what else the machine does."""
    return 1e6 / point.cpu_per_request if point.cpu_per_request else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Ours against the best of theirs."""

    what: str
    model: str
    in_flight: int
    ours: str  # variant of inferplane
    theirs: tuple[str, ...]  # names, or `name / variant`; empty: every peer without Envoy
    least: float
    value: Value = _rate


GOALS = (
    Goal(
        what="straight, rate",
        model="mlp",
        in_flight=128,
        ours="worker",
        theirs=("mosec",),
        least=1.5,
    ),
    Goal(
        what="straight, rate",
        model="mlp",
        in_flight=128,
        ours="worker",
        theirs=("triton",),
        least=2.5,
    ),
    Goal(
        what="straight, rate",
        model="mlp",
        in_flight=32,
        ours="worker",
        theirs=("kserve",),
        least=10,
    ),
    Goal(
        what="straight, rate",
        model="mlp",
        in_flight=32,
        ours="worker",
        theirs=("mlserver",),
        least=10,
    ),
    Goal(
        what="straight, 1 / p50",
        model="mlp",
        in_flight=1,
        ours="worker",
        theirs=(),
        least=1,
        value=_p50_rate,
    ),
    Goal(
        what="through Envoy, rate",
        model="mlp",
        in_flight=128,
        ours="up, 1",
        theirs=("triton",),
        least=1,
    ),
    Goal(
        what="through Envoy, rate",
        model="mlp",
        in_flight=128,
        ours="up, 1",
        theirs=("mosec / one, Envoy",),
        least=1,
    ),
    Goal(
        what="grpcio front, rate",
        model="mlp",
        in_flight=128,
        ours="worker, grpcio",
        theirs=("naive / one",),
        least=1.3,
    ),
    *(
        Goal(
            what="straight, rate",
            model="minilm",
            in_flight=32,
            ours="worker",
            theirs=(name,),
            least=1.25,
        )
        for name in ("naive", "mosec", "triton")
    ),
    Goal(
        what="straight, rate",
        model="minilm",
        in_flight=1,
        ours="worker",
        theirs=("naive / one",),
        least=1,
    ),
    *(
        Goal(
            what="straight, requests per CPU second",
            model="mlp",
            in_flight=128,
            ours="worker",
            theirs=(name,),
            least=1,
            value=_per_cpu,
        )
        for name in ("naive", "mosec", "triton", "kserve", "mlserver", "litserve", "bentoml", "ray")
    ),
)
_ENVOY = "Envoy"
_MOST_CPU = {"inferplane / up, 1": 30, "inferplane / up, 1, policies": 40}  # µs a request


def lines(reports: Sequence[Report]) -> Iterator[str]:
    """A table of the goals that this run has figures for."""
    yield "\n## Ratios and bounds (ours against the best variant of the other)\n"
    yield "| what | model | in flight | against | ours | theirs | ratio | asked | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for goal in GOALS:
        yield from _line(goal, reports)
    yield from _cpu(reports)
    yield from _memory(reports)
    yield from _first_answers(reports)
    for report in reports:
        for what, share in report.notes.items():
            yield f"\n{report.title}: {what}: {share:.1%}"


def _line(goal: Goal, reports: Sequence[Report]) -> Iterator[str]:
    ours = [r for r in reports if r.name == "inferplane" and r.variant == goal.ours]
    theirs = [r for r in reports if _is_meant(goal, r)]
    own = _best(goal, ours)
    others = {r.title: _best(goal, [r]) for r in theirs if _best(goal, [r])}
    if not own or not others:
        return
    title = max(others, key=lambda name: others[name])
    ratio = own / others[title]
    yield (
        f"| {goal.what} | {goal.model} | {goal.in_flight} | {title} | {own:,.0f} |"
        f" {others[title]:,.0f} | {ratio:.2f} | ≥ {goal.least:g} | {_verdict(ratio >= goal.least)} |"
    )


def _is_meant(goal: Goal, report: Report) -> bool:
    if report.name == "inferplane":
        return False
    if report.title in goal.theirs:
        return True
    return _ENVOY not in report.variant and (not goal.theirs or report.name in goal.theirs)


def _best(goal: Goal, reports: Sequence[Report]) -> float:
    values = [
        goal.value(point)
        for report in reports
        for point in report.points
        if point.model == goal.model and point.in_flight == goal.in_flight
    ]
    return max(values, default=0.0)


def _cpu(reports: Sequence[Report]) -> Iterator[str]:
    """What worker and Envoy cost together."""
    for report in reports:
        most = _MOST_CPU.get(report.title)
        if most is None:
            continue
        for point in report.points:
            if (point.model, point.in_flight) == ("mlp", 128):
                parts = ", ".join(f"{n} {v:.1f}" for n, v in sorted(point.cpu.items()) if v >= 0.05)
                spent = point.cpu.get("services.worker", 0.0) + point.cpu.get("envoy", 0.0)
                yield (
                    f"| {report.variant}: worker + Envoy, CPU µs a request ({parts}) | mlp | 128 | – | {spent:.1f} |"
                    f" – | – | ≤ {most} | {_verdict(spent <= most)} |"
                )


def _memory(reports: Sequence[Report]) -> Iterator[str]:
    ours = [r.memory for r in reports if r.title == "inferplane / worker" and r.memory]
    theirs = [r.memory for r in reports if r.title == "mlserver / one" and r.memory]
    if ours and theirs:
        ratio = ours[0].rss / theirs[0].rss
        yield (
            f"| RSS MB | both | – | mlserver / one | {ours[0].rss:.0f} | {theirs[0].rss:.0f} |"
            f" {ratio:.2f} | ≤ 0.6 | {_verdict(ratio <= 0.6)} |"
        )


def _first_answers(reports: Sequence[Report]) -> Iterator[str]:
    ours = [r.first_answer for r in reports if r.title == "inferplane / worker" and not r.reason]
    theirs = {
        r.title: r.first_answer
        for r in reports
        if r.name != "inferplane" and _ENVOY not in r.variant and not r.reason
    }
    if ours and theirs:
        title = min(theirs, key=lambda name: theirs[name])
        ratio = ours[0] / theirs[title]
        yield (
            f"| first answers, s | both | – | {title} | {ours[0]:.2f} | {theirs[title]:.2f} |"
            f" {ratio:.2f} | ≤ 1 | {_verdict(ratio <= 1)} |"
        )


def _verdict(holds: bool) -> str:  # noqa: FBT001 - a verdict is of one thing
    return "reached" if holds else "MISSED"
