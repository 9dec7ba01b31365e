"""Rows a second that a metering process takes over gRPC; beside a bare insert of the same rows."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil
from inferplane.metering.v1 import usage_service_pb2 as pb

from benchmarks.metering.process import MeteringProcess
from benchmarks.metering.rows import Worker

_METHOD = "/inferplane.metering.v1.UsageService/RecordUsage"
_COLUMNS = (
    "outcome",
    "attempt",
    "start_ns",
    "duration_ns",
    "queue_ns",
    "compute_ns",
    "input_tokens",
    "output_tokens",
    "request_bytes",
    "response_bytes",
)


@dataclass(frozen=True, slots=True)
class Amount:
    """What is sent."""

    rows: int
    size: int  # rows of a batch
    workers: int
    keys: int


async def ingest(amount: Amount, store_url: str) -> None:
    """Measure both and print them.

    Args:
        amount: of rows.
        store_url: of Postgres; empty: SQLite.
    """
    rows, size, workers, keys = amount.rows, amount.size, amount.workers, amount.keys
    batches = [
        [
            worker.batch(size, index * size * workers / rows)
            for index in range(rows // size // workers)
        ]
        for worker in (Worker(f"outbox-{number}", keys) for number in range(workers))
    ]
    total = sum(len(own) for own in batches) * size
    with tempfile.TemporaryDirectory(prefix="ip-") as folder:
        bare = _bare(Path(folder) / "bare.db", batches)
        async with MeteringProcess(Path(folder), store_url) as process:
            await process.prices()
            before = process.cpu_seconds()
            began = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                for own in batches:
                    tasks.create_task(_send(process.channel, own))
            seconds = time.perf_counter() - began
            cpu = process.cpu_seconds() - before
            size_bytes = process.database.stat().st_size if not store_url else 0
            report = await process.verify()
    per_minute = total / seconds * 60
    print(f"machine: {psutil.cpu_count()} cores, load {psutil.getloadavg()[0]:.1f}")
    print(f"rows {total}, batches of {size}, {workers} workers, {keys} keys")
    print(f"metering: {total / seconds:,.0f} rows/s = {per_minute / 1e6:.2f} million a minute")
    beside = f", {size_bytes / total:.0f} bytes a row" if size_bytes else ", Postgres's aside"
    print(f"          {cpu / total * 1e6:.1f} us of CPU a row{beside}")
    print(f"bare executemany of the same rows into one table: {total / bare:,.0f} rows/s")
    print(f"ratio: {bare / seconds:.2f}")
    print(f"verified: {report}")


async def _send(channel: grpc.aio.Channel, batches: list[bytes]) -> None:
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
    for batch in batches:
        await call(batch)


def _bare(path: Path, batches: list[list[bytes]]) -> float:
    """Seconds that the same rows take into one table without an index, one commit for each batch."""
    requests = [pb.RecordUsageRequest.FromString(batch) for own in batches for batch in own]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    names = ", ".join(_COLUMNS)
    connection.execute(
        f"CREATE TABLE rows (id INTEGER PRIMARY KEY, request_id BLOB, subject, {names})"
    )
    marks = ", ".join("?" * (len(_COLUMNS) + 2))
    statement = f"INSERT INTO rows (request_id, subject, {names}) VALUES ({marks})"
    began = time.perf_counter()
    for request in requests:
        batch = request.batch
        ids = batch.request_ids
        columns = [getattr(batch, name) for name in _COLUMNS]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            statement,
            zip(
                (ids[at : at + 16] for at in range(0, len(ids), 16)),
                batch.subject,
                *columns,
                strict=True,
            ),
        )
        connection.execute("COMMIT")
    seconds = time.perf_counter() - began
    connection.close()
    return seconds
