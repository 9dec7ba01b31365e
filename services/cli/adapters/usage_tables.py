"""What tables and charts show of usage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from inferplane.metering.v1 import usage_pb2, usage_report_service_pb2

from services.cli.adapters.tables import size, when
from services.cli.domain.account_reference import short_key
from services.cli.domain.amounts import readable
from services.cli.domain.split import short

_ALL = "ALL"
Sums = usage_report_service_pb2.UsageSums


@dataclass(frozen=True, slots=True)
class _Column:
    header: str
    cell: Callable[[Sums], str]
    shown: Callable[[Sums], bool]  # by the total: a column of zeros says nothing


def _columns(currency: str) -> list[_Column]:
    def count(header: str, value: Callable[[Sums], int], *, always: bool = False) -> _Column:
        return _Column(header, lambda s: f"{value(s):,}", lambda s: always or bool(value(s)))

    return [
        count("REQUESTS", lambda s: s.requests, always=True),
        count("FAILED", lambda s: s.failed + s.deadline + s.aborted),
        count("CANCELLED", lambda s: s.cancelled),
        count("INPUT TOKENS", lambda s: s.input_tokens),
        count("CACHED", lambda s: s.cached_tokens),
        count("OUTPUT TOKENS", lambda s: s.output_tokens),
        count("ROWS", lambda s: s.rows),
        _Column("COMPUTE", lambda s: f"{s.compute_seconds:.3f} s", lambda _: True),
        _Column(
            f"CHARGED {currency}",
            lambda s: readable(s.charged) or "0",
            lambda s: bool(s.charged) and bool(Decimal(s.charged)),
        ),
        _Column(
            f"MACHINES {currency}",
            lambda s: readable(s.machine_cost),
            lambda s: bool(s.machine_cost),
        ),
        _Column(
            "PER 1K TOKENS",
            lambda s: readable(s.machine_cost_per_1k_tokens),
            lambda s: bool(s.machine_cost_per_1k_tokens),
        ),
    ]


def table(
    report: usage_report_service_pb2.QueryUsageResponse, titles: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of a report, with the sum of all in the last one."""
    columns = [c for c in _columns(report.currency) if c.shown(report.total)]
    headers = [*(title.upper() for title in titles), *(column.header for column in columns)]
    rows = [
        [*(named(value) for value in line.values), *(c.cell(line.sums) for c in columns)]
        for line in report.lines
    ]
    if titles:
        all_ = [_ALL, *([""] * (len(titles) - 1))]
        rows.append([*all_, *(c.cell(report.total) for c in columns)])
    else:
        rows = [[c.cell(report.total) for c in columns]]
    return headers, rows


def named(value: str) -> str:
    """A line's value as it is typed elsewhere; `-` where requests have none."""
    if value.startswith("models/"):
        return short(value)
    return short_key(value) or "-"


def request_fields(request: usage_report_service_pb2.RequestUsage) -> dict[str, str]:
    """One request as it was counted."""
    subject, sums = request.subject, request.sums
    return {
        "request": request.request_id + (f" part {request.part}" if request.part else ""),
        "outcome": _word(usage_pb2.UsageOutcome.Name(request.outcome), "USAGE_OUTCOME_"),
        "kind": _word(usage_pb2.UsageKind.Name(subject.kind), "USAGE_KIND_"),
        "project": subject.project,
        "key": subject.key,
        "endpoint": subject.endpoint,
        "version": short(subject.version),
        "began": when(request.start_time),
        "attempts": str(request.attempts),
        "tokens": _tokens(sums),
        "rows": str(sums.rows) if sums.rows else "",
        "bytes": f"{size(sums.request_bytes)} in, {size(sums.response_bytes)} out",
        "time": f"{sums.seconds:.3f} s, {sums.queue_seconds:.3f} s waiting,"
        f" {sums.compute_seconds:.3f} s computing",
        "charged": readable(sums.charged) or "0",
        "entry": request.ledger_entry.removeprefix("ledgerEntries/"),
        "worker": request.worker,
    }


def _tokens(sums: Sums) -> str:
    if not sums.input_tokens and not sums.output_tokens:
        return ""
    return f"{sums.input_tokens} in ({sums.cached_tokens} from before), {sums.output_tokens} out"


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
