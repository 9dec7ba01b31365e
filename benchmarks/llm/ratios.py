"""The level that was set, each line of it as a ratio or a bound, from one run's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.llm.figures import Figures
from benchmarks.llm.trial import Report, named

_OURS = ("inferplane", "up")
_ALL_OPENVINO = ("openvino", "")
_FIRST, _GAP = "first text p50", "gap p99"
_VALUES: dict[str, Callable[[Figures], float]] = {
    "tokens/s": lambda point: point.rate,
    _FIRST: lambda point: point.first[0],
    _GAP: lambda point: point.gap[1],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Ours against that of their settings which gives the most tokens a second."""

    what: str  # of `_VALUES`
    scenario: str
    theirs: tuple[str, str]  # name and variant; no variant: any
    bound: float  # of rates the least ratio, of times the largest

    @property
    def is_rate(self) -> bool:
        return self.what == "tokens/s"


_RATES = (("A", 1.6), ("A16", 1.3), ("B", 2.2), ("C", 1.8))
GOALS = (
    *(
        Goal(what="tokens/s", scenario=name, theirs=_ALL_OPENVINO, bound=least)
        for name, least in _RATES
    ),
    Goal(what=_FIRST, scenario="A", theirs=_ALL_OPENVINO, bound=0.6),
    Goal(what=_GAP, scenario="A", theirs=_ALL_OPENVINO, bound=0.7),
    Goal(what="tokens/s", scenario="A", theirs=("llama.cpp", "same file"), bound=4.0),
    Goal(what="tokens/s", scenario="A", theirs=("llama.cpp", "Q4_0"), bound=1.8),
)
_COLD_START = 0.7
_WASTE = 0.04
_OWN_SHARE = 0.03


def lines(reports: Sequence[Report]) -> Iterator[str]:
    """A table of the goals that this run has figures for."""
    yield "\n## Ratios and bounds (ours against the best setting of the other)\n"
    yield "| what | scenario | against | ours | theirs | ratio | asked | |"
    yield "|---|---|---|---|---|---|---|---|"
    for goal in GOALS:
        yield from _line(goal, reports)
    yield from _cold_start(reports)
    for report in named(reports, *_OURS):
        for scenario, counters in report.counters.items():
            yield from _engine(scenario, counters)


def _line(goal: Goal, reports: Sequence[Report]) -> Iterator[str]:
    ours = _best(goal.scenario, named(reports, *_OURS))
    theirs = _best(goal.scenario, named(reports, *goal.theirs))
    if ours is None or theirs is None:
        return
    value = _VALUES[goal.what]
    own, other = value(ours.points[goal.scenario]), value(theirs.points[goal.scenario])
    ratio = own / other if other else 0.0
    holds = ratio >= goal.bound if goal.is_rate else ratio <= goal.bound
    sign = "≥" if goal.is_rate else "≤"
    shown = (f"{own:.0f}", f"{other:.0f}") if goal.is_rate else (_ms(own), _ms(other))
    yield (
        f"| {goal.what} | {goal.scenario} | {theirs.title} | {shown[0]} | {shown[1]} |"
        f" {ratio:.2f} | {sign} {goal.bound:g} | {_verdict(holds=holds)} |"
    )


def _best(scenario: str, reports: Sequence[Report]) -> Report | None:
    """The one of the most tokens a second."""
    having = [report for report in reports if scenario in report.points]
    return max(having, key=lambda report: report.points[scenario].rate, default=None)


def _cold_start(reports: Sequence[Report]) -> Iterator[str]:
    peers = [r for name in ("openvino", "llama.cpp") for r in named(reports, name)]
    for ours in (*named(reports, "inferplane", "worker"), *named(reports, *_OURS)):
        if peers:
            fastest = min(peers, key=lambda report: report.first_token)
            ratio = ours.first_token / fastest.first_token
            yield (
                f"| first token after, s | {ours.title} | {fastest.title} | {ours.first_token:.2f} |"
                f" {fastest.first_token:.2f} | {ratio:.2f} | ≤ {_COLD_START} |"
                f" {_verdict(holds=ratio <= _COLD_START)} |"
            )


def _engine(scenario: str, counters: dict[str, float]) -> Iterator[str]:
    """What the engine says of itself."""
    runner = counters.get("inferplane_engine_runner_seconds_total", 0.0)
    own = counters.get("inferplane_engine_own_seconds_total", 0.0)
    if runner:
        sampling = counters.get("inferplane_engine_sampling_seconds_total", 0.0)
        share = (own - sampling) / (own + runner)
        yield _bound("scheduler's and texts' share of step time", scenario, share, _OWN_SHARE)
        sampled = sampling / (own + runner)
        yield f"| sampling's share of step time | {scenario} | – | {sampled:.1%} | – | – | – | |"
    if (waste := counters.get("inferplane_engine_kv_waste")) is not None:
        yield _bound("KV waste, of the blocks that requests hold", scenario, waste, _WASTE)
        whole = waste * counters.get("vllm:kv_cache_usage_perc", 0.0)
        yield f"| KV waste, of the whole cache | {scenario} | – | {whole:.2%} | – | – | – | |"
    if (idle := counters.get("inferplane_engine_idle_slot_seconds_total")) is not None:
        yield f"| idle slots while requests waited, slot seconds | {scenario} | – | {idle:.2f} | – | – | – | |"


def _bound(what: str, scenario: str, value: float, most: float) -> str:
    verdict = _verdict(holds=value < most)
    return f"| {what} | {scenario} | – | {value:.1%} | – | – | < {most:.0%} | {verdict} |"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def _verdict(*, holds: bool) -> str:
    return "reached" if holds else "MISSED"
