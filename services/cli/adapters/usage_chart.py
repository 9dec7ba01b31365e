"""Usage as bars: columns in time, else a bar for each line."""

from collections.abc import Callable
from decimal import Decimal

from inferplane.metering.v1 import usage_report_service_pb2

from services.cli.adapters.usage_tables import Sums, named
from services.cli.domain.amounts import plain

_TIMES = frozenset(
    {
        usage_report_service_pb2.USAGE_DIMENSION_HOUR,
        usage_report_service_pb2.USAGE_DIMENSION_DAY,
        usage_report_service_pb2.USAGE_DIMENSION_MONTH,
    }
)
_LINES = 16  # of columns with their title and ruler
_NUMBER = 14  # characters of a figure beside a bar
_LEAST_BAR = 10  # characters, however narrow the terminal

MEASURES: dict[str, Callable[[Sums], float]] = {
    "charged": lambda s: float(s.charged or 0),
    "tokens": lambda s: float(s.input_tokens + s.output_tokens),
    "requests": lambda s: float(s.requests),
    "compute": lambda s: s.compute_seconds,
}


def best_measure(total: Sums) -> str:
    """What says most of these requests: their price, else their tokens, else how many."""
    return next((name for name in ("charged", "tokens") if MEASURES[name](total)), "requests")


def draw(
    report: usage_report_service_pb2.QueryUsageResponse, by: int, measure: str, width: int
) -> str:
    """The lines of a report by one dimension."""
    bars = [
        (" ".join(named(value) for value in line.values), MEASURES[measure](line.sums))
        for line in report.lines
    ]
    title = f"charged, {report.currency}" if measure == "charged" else measure
    if not any(value for _, value in bars):
        return f"no {title} to draw"
    return _columns(bars, title, width) if by in _TIMES else _bars(bars, title, width)


def _bars(bars: list[tuple[str, float]], title: str, width: int) -> str:
    longest = max(len(label) for label, _ in bars)
    most = max(value for _, value in bars)
    room = max(_LEAST_BAR, width - longest - _NUMBER - 2)
    return "\n".join(
        [
            title,
            *(
                f"{label:{longest}}  {'█' * round(value / most * room):{room}}{_figure(value):>{_NUMBER}}"
                for label, value in bars
            ),
        ]
    )


def _figure(value: float) -> str:
    """Six digits of it, without an exponent."""
    return f"{value:,.0f}" if value.is_integer() else plain(Decimal(f"{value:.6g}"))


def _columns(bars: list[tuple[str, float]], title: str, width: int) -> str:
    import plotext  # heavy, and few ask for it

    labels, values = [label for label, _ in bars], [value for _, value in bars]
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.draw(figure.bar(labels, values, width=0.6))
    figure.plot_size(width, _LINES)
    figure.title(title)
    return str(plotext.uncolorize(str(figure.build())))
