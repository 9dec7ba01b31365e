"""Reports of usage, as the edge's management API has them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from inferplane.metering.v1 import usage_pb2, usage_report_service_pb2

from services.cli.adapters.edge import CALL_SECONDS, Edge
from services.cli.adapters.money import stamp

_EXPORT_SECONDS = 3600.0

Dimension = usage_report_service_pb2.UsageDimension
Content = usage_report_service_pb2.ExportContent
FileFormat = usage_report_service_pb2.ExportFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which requests; empty: all."""

    since: datetime | None = None
    until: datetime | None = None
    project: str = ""
    key: str = ""
    endpoint: str = ""
    model: str = ""
    version: str = ""  # models/{model}/versions/{version}
    shadows: bool = False  # only mirrored copies, which are in no other report

    @property
    def message(self) -> usage_report_service_pb2.UsageFilter:
        """As the API has it."""
        kind = usage_pb2.USAGE_KIND_SHADOW if self.shadows else usage_pb2.USAGE_KIND_UNSPECIFIED
        return usage_report_service_pb2.UsageFilter(
            since=stamp(self.since),
            until=stamp(self.until),
            project=self.project,
            key=self.key,
            endpoint=self.endpoint,
            model=self.model,
            version=self.version,
            kind=kind,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a report is to have lines for."""

    selection: Selection
    by: tuple[int, ...]  # UsageDimension
    tag: str = ""
    limit: int = 0


async def query(edge: Edge, question: Question) -> usage_report_service_pb2.QueryUsageResponse:
    """The report."""
    request = usage_report_service_pb2.QueryUsageRequest(
        filter=question.selection.message,
        by=[Dimension.ValueType(by) for by in question.by],
        tag_key=question.tag,
        limit=question.limit,
    )
    return await edge.usage.QueryUsage(request, timeout=CALL_SECONDS)


async def of_request(
    edge: Edge, request_id: str
) -> usage_report_service_pb2.GetRequestUsageResponse:
    """One request."""
    request = usage_report_service_pb2.GetRequestUsageRequest(request_id=request_id)
    return await edge.usage.GetRequestUsage(request, timeout=CALL_SECONDS)


async def export(edge: Edge, content: int, form: int, selection: Selection) -> AsyncIterator[bytes]:
    """The file, in pieces."""
    request = usage_report_service_pb2.ExportUsageRequest(
        content=Content.ValueType(content),
        format=FileFormat.ValueType(form),
        filter=selection.message,
    )
    async for response in edge.usage.ExportUsage(request, timeout=_EXPORT_SECONDS):
        yield response.chunk
