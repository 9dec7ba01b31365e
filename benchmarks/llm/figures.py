"""What a load's answers say: tokens a second, and how long the first and the next text took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.llm.call import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Times in seconds."""

    scenario: str
    calls: int
    seconds: float  # from the first call to the last end
    tokens: int  # generated
    first: tuple[float, float]  # to the first text: p50, p99
    gap: tuple[float, float]  # between texts: p50, p99
    faults: tuple[str, ...]
    offered: float = 0.0  # calls a second, in an open loop

    @property
    def rate(self) -> float:
        """Output tokens a second."""
        return self.tokens / self.seconds

    @property
    def call_rate(self) -> float:
        return self.calls / self.seconds


def figures(scenario: str, answers: Sequence[Answer], *, offered: float = 0.0) -> Figures:
    """Of one load. Answers with a fault count in nothing but `faults`."""
    good = [answer for answer in answers if not answer.fault()]
    begun = min((answer.began for answer in answers), default=0.0)
    ended = max((answer.ended for answer in answers), default=1.0)
    return Figures(
        scenario=scenario,
        calls=len(good),
        seconds=ended - begun,
        tokens=sum(answer.tokens for answer in good),
        first=_quantiles([answer.first for answer in good]),
        gap=_quantiles([gap for answer in good for gap in answer.gaps]),
        faults=tuple(fault for answer in answers if (fault := answer.fault())),
        offered=offered,
    )


def middle(rounds: Sequence[Figures]) -> Figures:
    """The round of median rate; faults of all."""
    chosen = sorted(rounds, key=lambda one: one.rate)[(len(rounds) - 1) // 2]
    faults = tuple(fault for one in rounds for fault in one.faults)
    return Figures(
        scenario=chosen.scenario,
        calls=chosen.calls,
        seconds=chosen.seconds,
        tokens=chosen.tokens,
        first=chosen.first,
        gap=chosen.gap,
        faults=faults,
        offered=chosen.offered,
    )


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values) or [0.0]
    return _at(ordered, 0.5), _at(ordered, 0.99)


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
