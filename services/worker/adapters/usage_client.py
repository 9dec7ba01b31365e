"""Rows to metering, by RecordUsage."""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2
from inferplane.metering.v1 import usage_pb2, usage_service_pb2, usage_service_pb2_grpc

from services.rpc.interceptor import DETAILS_KEY
from services.worker.domain.usage_row import UsageRows, UsageSubject
from services.worker.ports.usage import UsageGapError, UsageRefusedError, UsageStoreError

_SECONDS = 30.0  # for one call
_GAP = "USAGE_GAP"
# Columns of the same name in rows and messages.
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
_HOPELESS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE}

_UNKNOWN = UsageSubject("", "", "", "", "")  # lost with the machine

Scores = Callable[[bytes], Mapping[str, float]]  # of a request; none: not yet, or never


def _no_scores(_request_id: bytes) -> Mapping[str, float]:
    return {}


class MeteringUsage:
    """UsageStore over UsageService."""

    def __init__(
        self, channel: grpc.aio.Channel, worker: str, pool: str, scores: Scores = _no_scores
    ) -> None:
        """Assign only; `scores` is asked for what was told of a request after it had ended."""
        self._stub = usage_service_pb2_grpc.UsageServiceStub(channel)
        self._worker = worker
        self._pool = pool
        self._scores = scores

    async def record(self, source: str, first: int, rows: UsageRows) -> int:
        """See `UsageStore`."""
        try:
            batch = message(rows, self._scores)
        except ValueError as error:  # numbers that no message can have: a file was damaged
            raise UsageRefusedError(str(error)) from error
        request = usage_service_pb2.RecordUsageRequest(
            source=source,
            first_sequence=first,
            batch=batch,
            worker=self._worker,
            pool=self._pool,
        )
        try:
            response = await self._stub.RecordUsage(request, timeout=_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _meant(error) from error
        return int(response.next_sequence)


def message(rows: UsageRows, scores: Scores = _no_scores) -> usage_pb2.UsageBatch:
    """Rows as columns; those that are all zero are left out."""
    named, places = _subjects(rows)
    batch = usage_pb2.UsageBatch(
        subjects=named,
        subject=places,
        request_ids=rows.rows["request_id"].tobytes(),
        **{name: column.tolist() for name in _COLUMNS if (column := rows.rows[name]).any()},
    )
    for number, data in rows.told.items():
        told = usage_pb2.UsageTelemetry.FromString(data)
        told.row = number - rows.first
        for label, score in scores(bytes(rows.rows["request_id"][told.row])).items():
            told.scores[label] = score
        batch.telemetry.append(told)
    return batch


def _subjects(rows: UsageRows) -> tuple[list[usage_pb2.UsageSubject], list[int]]:
    """Those that the rows name, and their places among them."""
    places: dict[int, int] = {}
    column = [places.setdefault(number, len(places)) for number in rows.rows["subject"].tolist()]
    return [_subject(rows, number) for number in places], column


def _subject(rows: UsageRows, number: int) -> usage_pb2.UsageSubject:
    subject = rows.subjects.get(number, _UNKNOWN)
    fields: dict[str, Any] = {
        "project": subject.project,
        "key": subject.key,
        "endpoint": subject.endpoint,
        "version": subject.version,
        "digest": subject.digest,
        "kind": int(subject.kind),
    }
    return usage_pb2.UsageSubject(**fields)


def _meant(error: grpc.aio.AioRpcError) -> Exception:
    said = f"{error.code().name}: {error.details()}"
    if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
        info = _error_info(error)
        if info.reason == _GAP:
            return UsageGapError(int(info.metadata["next"]))
    return UsageRefusedError(said) if error.code() in _HOPELESS else UsageStoreError(said)


def _error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Unpack(info):
                    return info
    return info
