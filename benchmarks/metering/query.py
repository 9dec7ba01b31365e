"""How long reports take over many rows."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
from inferplane.metering.v1 import usage_report_service_pb2 as pb
from inferplane.metering.v1 import usage_report_service_pb2_grpc

from benchmarks.metering.process import MeteringProcess
from benchmarks.metering.rows import Worker

_METHOD = "/inferplane.metering.v1.UsageService/RecordUsage"
_BATCH = 10_000
_REPORTS: Sequence[tuple[str, Sequence[pb.UsageDimension.ValueType]]] = (
    ("in all", []),
    ("by model", [pb.USAGE_DIMENSION_MODEL]),
    ("by project", [pb.USAGE_DIMENSION_PROJECT]),
    ("by key", [pb.USAGE_DIMENSION_KEY]),
    ("by endpoint", [pb.USAGE_DIMENSION_ENDPOINT]),
    ("by day", [pb.USAGE_DIMENSION_DAY]),
    ("by day and model", [pb.USAGE_DIMENSION_DAY, pb.USAGE_DIMENSION_MODEL]),
)


async def query(rows: int, keys: int, repeats: int) -> None:
    """Fill a ledger, ask it, print the times."""
    with tempfile.TemporaryDirectory(prefix="ip-") as folder:
        async with MeteringProcess(Path(folder)) as process:
            await process.prices()
            began = time.perf_counter()
            await _fill(process.channel, rows, keys)
            seconds = time.perf_counter() - began
            print(f"{rows:,} rows of {keys:,} keys in 30 days, stored in {seconds:.0f} s")
            size = process.database.stat().st_size
            print(f"database: {size / 2**20:,.0f} MiB")
            stub = usage_report_service_pb2_grpc.UsageReportServiceStub(process.channel)
            for name, by in _REPORTS:
                request = pb.QueryUsageRequest(by=by)
                times = [await _timed(stub, request) for _ in range(repeats)]
                times.sort()
                print(
                    f"usage {name}: p50 {times[len(times) // 2] * 1e3:.0f} ms,"
                    f" most {times[-1] * 1e3:.0f} ms"
                )


async def _timed(
    stub: usage_report_service_pb2_grpc.UsageReportServiceAsyncStub, request: pb.QueryUsageRequest
) -> float:
    began = time.perf_counter()
    await stub.QueryUsage(request)
    return time.perf_counter() - began


async def _fill(channel: grpc.aio.Channel, rows: int, keys: int) -> None:
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
    worker = Worker("outbox", keys)
    sending: asyncio.Future[bytes] | None = None
    for sent in range(0, rows, _BATCH):
        batch = await asyncio.to_thread(worker.batch, min(_BATCH, rows - sent), sent / rows)
        if sending is not None:
            await sending
        sending = asyncio.ensure_future(_once(call, batch))
    if sending is not None:
        await sending


async def _once(call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes], batch: bytes) -> bytes:
    return await call(batch)
