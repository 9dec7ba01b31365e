"""A small real metering over gRPC in the test's own process: takes usage as the real one promises, and can be away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from inferplane.metering.v1 import (
    lease_service_pb2,
    lease_service_pb2_grpc,
    usage_pb2,
    usage_service_pb2,
    usage_service_pb2_grpc,
)

from services.rpc.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from services.rpc.server import RpcServer

Context = grpc.aio.ServicerContext[Any, Any]

_COLUMNS = (
    "outcome",
    "attempt",
    "part",
    "start_ns",
    "duration_ns",
    "queue_ns",
    "compute_ns",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "rows",
    "request_bytes",
    "response_bytes",
    "preemptions",
    "from_cache",
)


@dataclass
class Row:
    """One request as it came."""

    request_id: bytes
    subject: usage_pb2.UsageSubject
    telemetry: usage_pb2.UsageTelemetry | None
    values: dict[str, int]

    def __getattr__(self, name: str) -> int:
        return self.values[name]

    @property
    def ended(self) -> str:
        """How."""
        return usage_pb2.UsageOutcome.Name(self.outcome).removeprefix("USAGE_OUTCOME_")  # type: ignore[arg-type] # numbers of an enum


@dataclass
class Metering:
    """What was stored."""

    rows: list[Row] = field(default_factory=list)
    wanted: dict[str, int] = field(default_factory=dict)  # next number, by source
    calls: int = 0
    twice: int = 0  # rows that came again
    is_away: bool = False
    loses_answers: bool = False  # rows are stored, and the caller never hears of it
    poison: str = ""  # a project whose rows are refused
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, count: int, seconds: float = 60.0) -> list[Row]:
        """Wait until there are so many rows; returns all."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(lambda: len(self.rows) >= count)
        return self.rows

    def take(self, request: usage_service_pb2.RecordUsageRequest) -> int:
        """Store what is new. Raises InferplaneError."""
        self.calls += 1
        if self.is_away:
            raise UnavailableError("away", reason="AWAY")
        source, first = request.source, request.first_sequence
        wanted = self.wanted.get(source, 0)
        if first > wanted:
            raise FailedPreconditionError(
                "a gap", reason="USAGE_GAP", metadata={"next": str(wanted)}
            )
        came = _rows(request.batch)
        if self.poison and any(row.subject.project == self.poison for row in came):
            raise InvalidArgumentError("poison")
        self.twice += min(len(came), wanted - first)
        self.rows += came[wanted - first :]
        self.wanted[source] = max(wanted, first + len(came))
        if self.loses_answers:
            raise UnavailableError("lost", reason="LOST")
        return self.wanted[source]


def _rows(batch: usage_pb2.UsageBatch) -> list[Row]:
    told = {one.row: one for one in batch.telemetry}
    found = []
    for i, place in enumerate(batch.subject):
        columns = {name: getattr(batch, name) for name in _COLUMNS}
        values = {name: int(column[i]) if column else 0 for name, column in columns.items()}
        assert all(len(column) in (0, len(batch.subject)) for column in columns.values())
        ident = batch.request_ids[16 * i : 16 * i + 16]
        found.append(Row(ident, batch.subjects[place], told.get(i), values))
    return found


class _Servicer(usage_service_pb2_grpc.UsageServiceServicer):
    def __init__(self, metering: Metering) -> None:
        self._metering = metering

    async def RecordUsage(
        self, request: usage_service_pb2.RecordUsageRequest, context: Context
    ) -> usage_service_pb2.RecordUsageResponse:
        assert request.worker
        assert request.pool
        try:
            following = self._metering.take(request)
        finally:
            async with self._metering.changed:
                self._metering.changed.notify_all()
        return usage_service_pb2.RecordUsageResponse(next_sequence=following)


class _Leases(lease_service_pb2_grpc.LeaseServiceServicer):
    """Nobody has a budget."""

    async def ExchangeLeases(
        self, request: lease_service_pb2.ExchangeLeasesRequest, context: Context
    ) -> lease_service_pb2.ExchangeLeasesResponse:
        answer = lease_service_pb2.ExchangeLeasesResponse()
        answer.lease.seconds, answer.next.seconds = 10, 1
        for _ in request.subjects:
            answer.subjects.add(project_has_none=True)
        return answer


@asynccontextmanager
async def serving(metering: Metering, address: str) -> AsyncIterator[None]:
    """The stand-in, listening."""
    server = RpcServer(address=address, max_message_bytes=1 << 24)
    usage_service_pb2_grpc.add_UsageServiceServicer_to_server(_Servicer(metering), server.grpc)
    lease_service_pb2_grpc.add_LeaseServiceServicer_to_server(_Leases(), server.grpc)
    await server.start(())
    try:
        yield
    finally:
        await server.stop(0)
