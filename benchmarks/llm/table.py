"""What was measured, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.llm.figures import Figures
from benchmarks.llm.scenario import SCENARIOS
from benchmarks.llm.trial import Report


def lines(reports: Sequence[Report]) -> Iterator[str]:
    """All tables."""
    names = list(dict.fromkeys(name for report in reports for name in report.points))
    yield "\n## Output tokens a second\n"
    yield "| server | " + " | ".join(map(_heading, names)) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for report in reports:
        if report.points:
            cells = [_rate(report.points.get(name)) for name in names]
            yield f"| {report.title} | " + " | ".join(cells) + " |"
    yield "\n## Milliseconds: first text p50/p99; between texts p50/p99\n"
    yield "| server | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for report in reports:
        if report.points:
            cells = [_times(report.points.get(name)) for name in names]
            yield f"| {report.title} | " + " | ".join(cells) + " |"
    yield from _legend(reports)


def _legend(reports: Sequence[Report]) -> Iterator[str]:
    yield "\n## Start, memory, check\n"
    yield "| server | first token after, s | RSS MB | PSS MB | check | is |"
    yield "|---|---|---|---|---|---|"
    for report in reports:
        if (memory := report.memory) is not None:
            yield (
                f"| {report.title} | {report.first_token:.2f} | {memory.rss:.0f} | {memory.pss:.0f}"
                f" | {report.check or '–'} | {report.what} |"
            )
    missing = [report for report in reports if report.reason]
    if missing:
        yield "\n## Without figures, or not all\n"
        yield from (f"- {r.title}: {' '.join(r.reason.split())[-600:]}" for r in missing)


def _heading(name: str) -> str:
    if name in SCENARIOS:
        return f"{name}: {SCENARIOS[name].what}"
    return f"{name}: as they come"


def _rate(point: Figures | None) -> str:
    if point is None:
        return ""
    offered = f" ({point.offered:.2f} calls/s)" if point.offered else ""
    return f"{point.rate:.0f}{offered}"


def _times(point: Figures | None) -> str:
    if point is None:
        return ""
    first, gap = point.first, point.gap
    return f"{_ms(first[0])}/{_ms(first[1])}; {_ms(gap[0])}/{_ms(gap[1])}"


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
