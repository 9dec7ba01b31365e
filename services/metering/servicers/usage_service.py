"""`inferplane.metering.v1.UsageService`: takes what workers counted."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import grpc
import numpy as np
from inferplane.metering.v1 import usage_pb2
from inferplane.metering.v1 import usage_service_pb2 as pb
from inferplane.metering.v1.usage_service_pb2_grpc import UsageServiceServicer

from services.metering.domain.usage import COLUMNS, Column, Kind, Subject, Telemetry, UsageBatch
from services.metering.drivers.usage_ingest import UsageIngest
from services.rpc.errors import InvalidArgumentError
from services.rpc.names import VersionName, parse_version

_Context = grpc.aio.ServicerContext[Any, Any]
_KINDS = {int(kind) for kind in Kind}
_DEFAULT_POOL = "default"
_MOST = 2**63 - 1


class UsageService(UsageServiceServicer):
    """Reads columns, has them recorded, answers which row comes next."""

    def __init__(self, ingest: UsageIngest) -> None:
        self._ingest = ingest

    async def RecordUsage(
        self, request: pb.RecordUsageRequest, context: _Context
    ) -> pb.RecordUsageResponse:
        batch = await asyncio.to_thread(usage_batch, request)  # of many rows it takes long
        following = await self._ingest.record(batch)
        return pb.RecordUsageResponse(next_sequence=following)


def usage_batch(request: pb.RecordUsageRequest) -> UsageBatch:
    """The request's batch, not yet checked for what it says."""
    batch = request.batch
    count = len(batch.subject)
    pool = request.pool or _DEFAULT_POOL
    return UsageBatch(
        source=request.source,
        first_sequence=request.first_sequence,
        worker=request.worker,
        pool=pool,
        subjects=[_subject(place, told, pool) for place, told in enumerate(batch.subjects)],
        subject=_column("subject", batch.subject, count),
        request_ids=batch.request_ids,
        columns={name: _column(name, getattr(batch, name), count) for name in COLUMNS},
        telemetry=[_telemetry(told) for told in batch.telemetry],
    )


def _column(name: str, values: Sequence[int], count: int) -> Column:
    if not values:
        return np.zeros(count, dtype=np.int64)
    column = np.array(values, dtype=np.uint64)
    if int(column.max()) > _MOST:
        raise InvalidArgumentError.of_field(f"batch.{name}", f"allowed: at most {_MOST}")
    return column.astype(np.int64)


def _subject(place: int, told: usage_pb2.UsageSubject, pool: str) -> Subject:
    version = VersionName("", "")
    if told.version:
        try:
            version = _version(told.version)
        except InvalidArgumentError:
            version = parse_version(f"batch.subjects[{place}].version", told.version)
    if told.kind not in _KINDS:
        raise InvalidArgumentError.of_field(
            f"batch.subjects[{place}].kind", f"{told.kind}; allowed: values of UsageKind but 0"
        )
    return Subject(
        project=told.project,
        key=told.key,
        endpoint=told.endpoint,
        model=version.model,
        version=version.version,
        digest=told.digest,
        kind=Kind(told.kind),
        pool=pool,
    )


@lru_cache(maxsize=4096)
def _version(name: str) -> VersionName:
    return parse_version("version", name)


def _telemetry(told: usage_pb2.UsageTelemetry) -> Telemetry:
    return Telemetry(
        row=told.row,
        fingerprint=told.prompt_fingerprint,
        input_characters=told.input_characters,
        output_characters=told.output_characters,
        scores=dict(told.scores),
    )
