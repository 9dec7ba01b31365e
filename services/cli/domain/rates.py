"""Rates of calls, from totals that workers report again and again. Time is an argument."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Totals:
    """Calls of one version on one worker since the worker started."""

    succeeded: int
    failed: int  # also refused at the door; without cancelled ones
    duration_us: int  # sum over answered calls


@dataclass(frozen=True, slots=True)
class Rate:
    """Calls of one version on all workers, over the window."""

    calls_per_second: float  # answered and failed
    errors_per_second: float
    mean_ms: float | None  # None: nothing was answered


Sample = Mapping[tuple[str, str], Totals]  # by worker and version


class RateWindow:
    """Samples of the last seconds and the rates they show.

    Workers come and go: a step counts only for those that are in both of its samples, and never backwards.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        """`seconds` is how far back rates look; one heartbeat of a worker is about 1 s."""
        self._seconds = seconds
        self._samples: deque[tuple[float, Sample]] = deque()

    def add(self, now: float, sample: Sample) -> None:
        """Take a sample and forget what the window has left behind."""
        self._samples.append((now, sample))
        while len(self._samples) > 2 and self._samples[1][0] <= now - self._seconds:
            self._samples.popleft()

    def rates(self) -> dict[str, Rate]:
        """Rate by version; empty until there are two samples."""
        if len(self._samples) < 2:
            return {}
        elapsed = self._samples[-1][0] - self._samples[0][0]
        sums: dict[str, list[int]] = {version: [0, 0, 0] for _, version in self._samples[-1][1]}
        steps = zip(self._samples, list(self._samples)[1:], strict=False)
        for (_, before), (_, after) in steps:
            for key in before.keys() & after.keys() if elapsed > 0 else ():
                total = sums.setdefault(key[1], [0, 0, 0])
                for index, growth in enumerate(_growth(before[key], after[key])):
                    total[index] += max(0, growth)
        return {version: _rate(total, elapsed) for version, total in sums.items()}


def _growth(before: Totals, after: Totals) -> tuple[int, int, int]:
    return (
        after.succeeded - before.succeeded,
        after.failed - before.failed,
        after.duration_us - before.duration_us,
    )


def _rate(total: list[int], elapsed: float) -> Rate:
    succeeded, failed, duration_us = total
    if elapsed <= 0:
        return Rate(0.0, 0.0, None)
    mean = duration_us / succeeded / 1000 if succeeded else None
    return Rate((succeeded + failed) / elapsed, failed / elapsed, mean)
