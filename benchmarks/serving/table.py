"""What was measured, as text: a table for each model, ratios, and the level that was set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.serving.trial import Point, Report

_NOISY = 0.2  # cores used by others from which a figure is marked


def lines(reports: Sequence[Report], models: Sequence[str]) -> Iterator[str]:
    """All tables as Markdown."""
    for model in models:
        yield f"\n## {model}\n"
        yield from _table(reports, model)
    yield "\n## Memory and start (both models loaded and used)\n"
    yield "| server | processes | RSS MB | PSS MB | first answers of all models, s | is |"
    yield "|---|---|---|---|---|---|"
    for report in reports:
        if (memory := report.memory) is not None:
            yield (
                f"| {report.title} | {memory.processes} | {memory.rss:.0f} | {memory.pss:.0f}"
                f" | {report.first_answer:.2f} | {report.what} |"
            )
    missing = [report for report in reports if report.reason]
    if missing:
        yield "\n## Without figures\n"
        yield from (f"- {r.title}: {' '.join(r.reason.split())[-600:]}" for r in missing)


def _table(reports: Sequence[Report], model: str) -> Iterator[str]:
    loads = list(dict.fromkeys(_load(p) for r in reports for p in r.points if p.model == model))
    names = [f"{n} in flight" if n else f"{rate:g}/s offered" for n, rate in loads]
    yield "| server | " + " | ".join(names) + " | errors | wrong |"
    yield "|---" * (len(names) + 3) + "|"
    for report in reports:
        points = {_load(p): p for p in report.points if p.model == model}
        if not points:
            continue
        cells = [_cell(points.get(load)) for load in loads]
        errors = sum(p.result.failed for p in points.values())
        wrong = sum(p.wrong for p in points.values())
        kept = sum(p.kept for p in points.values())
        yield f"| {report.title} | " + " | ".join(cells) + f" | {errors} | {wrong} of {kept} |"
    yield (
        "\nCells: answers/s, p50/p99 ms, CPU µs a request: server + generator; `~`: others used"
        f" more than {_NOISY} cores meanwhile. Open loop: latency from the time a call was due."
    )


def _load(point: Point) -> tuple[int, float]:
    return point.in_flight, point.offered


def _cell(point: Point | None) -> str:
    if point is None:
        return ""
    result = point.result
    noisy = "~" if point.others > _NOISY else ""
    return (
        f"{noisy}{result.rate:,.0f}/s, {_ms(result.p50)}/{_ms(result.p99)} ms,"
        f" {point.cpu_per_request:,.0f}+{point.cpu_of_generator:.0f} µs"
    )


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
