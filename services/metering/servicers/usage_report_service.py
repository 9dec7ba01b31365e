"""`inferplane.metering.v1.UsageReportService`: reports, single requests, exports."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from inferplane.metering.v1 import usage_pb2
from inferplane.metering.v1 import usage_report_service_pb2 as pb
from inferplane.metering.v1.usage_report_service_pb2_grpc import UsageReportServiceServicer

from services.metering.domain.export import Content, Format
from services.metering.domain.money import format_amount
from services.metering.domain.period import moment_of
from services.metering.domain.report import Dimension, Line, Query, UsageFilter
from services.metering.domain.sums import SUMS
from services.metering.domain.usage import ID_BYTES, Kind
from services.metering.drivers.exports import Exports
from services.metering.drivers.reports import Reports, RequestReport
from services.metering.servicers.moments import of_nanoseconds
from services.rpc.errors import InvalidArgumentError
from services.rpc.names import check_id, parse_version, shown
from services.rpc.times import moment, timestamp
from services.rpc.violations import Violations

_Context = grpc.aio.ServicerContext[Any, Any]
_SECOND = 1e9
_KINDS = {int(kind) for kind in Kind}
_DIMENSIONS = {int(one) for one in Dimension}
_CONTENTS = {int(one) for one in Content}
_FORMATS = {int(one) for one in Format}
_TIMES = {
    "compute_ns": "compute_seconds",
    "queue_ns": "queue_seconds",
    "duration_ns": "seconds",
    "lost_compute_ns": "lost_compute_seconds",
}


def sums_message(line: Line) -> pb.UsageSums:
    """Sums as a message."""
    message = pb.UsageSums()
    for name, value in zip(SUMS, line.sums, strict=True):
        if name == "charged":
            message.charged = format_amount(value)
        elif name in _TIMES:
            setattr(message, _TIMES[name], value / _SECOND)
        else:
            setattr(message, name, value)
    if line.machine_cost is not None:
        message.machine_cost = format_amount(line.machine_cost)
    if line.cost_per_1k_tokens is not None:
        message.machine_cost_per_1k_tokens = format_amount(line.cost_per_1k_tokens)
    return message


def usage_filter(given: pb.UsageFilter) -> UsageFilter:
    """The filter; InvalidArgumentError names all that is wrong with it."""
    violations = Violations()
    for name in ("project", "endpoint", "model"):
        if value := getattr(given, name):
            violations.take(check_id, f"filter.{name}", value)
    violations.require("\0" not in given.key, "filter.key", "allowed: no character 0")
    model, version = given.model, ""
    if given.version:
        parsed = violations.take(parse_version, "filter.version", given.version)
        if parsed is not None:
            violations.require(
                given.model in {"", parsed.model}, "filter.model", "allowed: the version's model"
            )
            model, version = parsed.model, parsed.version
    violations.raise_if_any()
    return UsageFilter(
        since=moment("filter.since", given.since) if given.HasField("since") else None,
        until=moment("filter.until", given.until) if given.HasField("until") else None,
        project=given.project,
        key=given.key,
        endpoint=given.endpoint,
        model=model,
        version=version,
        kind=Kind(given.kind) if given.kind in _KINDS else None,
    )


def _request_id(text: str) -> bytes:
    digits = text.replace("-", "")
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if len(found) != ID_BYTES or not text.isascii():
        raise InvalidArgumentError.of_field(
            "request_id", f"{shown(text)}; allowed: an x-request-id, 32 hexadecimal digits"
        )
    return found


def _request_message(found: RequestReport) -> pb.RequestUsage:
    subject = found.subject
    digits = found.request_id.hex()
    return pb.RequestUsage(
        request_id="-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
        part=found.part,
        subject=usage_pb2.UsageSubject(
            project=subject.project,
            key=subject.key,
            endpoint=subject.endpoint,
            version=subject.version_name,
            digest=subject.digest,
            kind=usage_pb2.UsageKind.ValueType(subject.kind),
        ),
        outcome=usage_pb2.UsageOutcome.ValueType(found.outcome),
        attempts=found.attempts,
        start_time=timestamp(of_nanoseconds(found.start_ns)),
        sums=sums_message(Line((), list(found.sums))),
        ledger_entry=f"ledgerEntries/{found.entry}" if found.entry else "",
        worker=found.worker,
    )


class UsageReportService(UsageReportServiceServicer):
    """Reads requests, calls the use cases, writes answers."""

    def __init__(self, reports: Reports, exports: Exports, currency: str) -> None:
        self._reports = reports
        self._exports = exports
        self._currency = currency

    async def QueryUsage(
        self, request: pb.QueryUsageRequest, context: _Context
    ) -> pb.QueryUsageResponse:
        unknown = [one for one in request.by if one not in _DIMENSIONS]
        if unknown:
            raise InvalidArgumentError.of_field(
                "by", f"{unknown[0]}; allowed: values of UsageDimension but 0"
            )
        query = Query(
            filter=usage_filter(request.filter),
            by=[Dimension(one) for one in request.by],
            tag_key=request.tag_key,
            limit=request.limit,
        )
        found = await self._reports.query(query)
        return pb.QueryUsageResponse(
            lines=[
                pb.UsageLine(values=line.values, sums=sums_message(line)) for line in found.lines
            ],
            total=sums_message(found.total),
            line_count=found.line_count,
            currency=self._currency,
            since=timestamp(moment_of(found.span.since)),
            until=timestamp(moment_of(found.span.until)),
        )

    async def GetRequestUsage(
        self, request: pb.GetRequestUsageRequest, context: _Context
    ) -> pb.GetRequestUsageResponse:
        found = await self._reports.request(_request_id(request.request_id))
        return pb.GetRequestUsageResponse(requests=[_request_message(one) for one in found])

    async def ExportUsage(
        self, request: pb.ExportUsageRequest, context: _Context
    ) -> AsyncIterator[pb.ExportUsageResponse]:
        violations = Violations()
        violations.require(
            request.content in _CONTENTS, "content", "allowed: values of ExportContent but 0"
        )
        violations.require(
            request.format in _FORMATS, "format", "allowed: values of ExportFormat but 0"
        )
        violations.raise_if_any()
        chunks = self._exports.export(
            Content(request.content), Format(request.format), usage_filter(request.filter)
        )
        async for chunk in chunks:
            yield pb.ExportUsageResponse(chunk=chunk)
