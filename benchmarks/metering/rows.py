"""Batches of usage as workers send them: many keys, few endpoints, a month of time."""

import os
import time

import numpy as np
from inferplane.metering.v1 import usage_pb2
from inferplane.metering.v1 import usage_service_pb2 as pb

MONTH_NS = 30 * 86_400 * 10**9
_ENDPOINTS = (("chat", "smol"), ("chat-long", "smol"), ("embed", "minilm"), ("digits", "digits"))
_PER_BATCH = 200  # subjects


class Worker:
    """One outbox."""

    def __init__(self, source: str, keys: int, span_ns: int = MONTH_NS) -> None:
        self._source = source
        self._keys = keys
        self._span_ns = span_ns
        self._random = np.random.default_rng(7)
        self._sent = 0
        self._subjects = min(_PER_BATCH, keys * len(_ENDPOINTS))
        self._drawn: dict[int, list[usage_pb2.UsageBatch]] = {}
        self._begin_ns = time.time_ns() - span_ns

    def batch(self, rows: int, progress: float) -> bytes:
        """The next request, as bytes.

        Args:
            rows: how many rows.
            progress: how much of the span of time has passed, 0 to 1.
        """
        request = pb.RecordUsageRequest(
            source=self._source, first_sequence=self._sent, worker="w1", pool="default"
        )
        batch = request.batch
        batch.CopyFrom(self._columns(rows))
        batch.subjects.extend(self._subject() for _ in range(self._subjects))
        batch.request_ids = os.urandom(16 * rows)
        start = self._begin_ns + int(progress * self._span_ns)
        batch.start_ns.extend((start + self._random.integers(0, 10**10, rows)).tolist())
        self._sent += rows
        return request.SerializeToString()

    def _columns(self, rows: int) -> usage_pb2.UsageBatch:
        """Numbers of so many rows; a few sets of them come again and again, as drawing them takes long."""
        known = self._drawn.setdefault(rows, [])
        if len(known) == _SETS:
            return known[int(self._random.integers(0, _SETS))]
        random, batch = self._random, usage_pb2.UsageBatch()
        batch.subject.extend(random.integers(0, self._subjects, rows).tolist())
        # Nearly all are well; some fail, some are told of by a second attempt.
        batch.outcome.extend(random.choice(_ENDS, rows, p=_CHANCES).tolist())
        batch.attempt.extend(np.where(random.random(rows) < 0.002, 2, 1).tolist())
        for name, largest in _COLUMNS.items():
            getattr(batch, name).extend(random.integers(1, largest, rows).tolist())
        known.append(batch)
        return batch

    def _subject(self) -> usage_pb2.UsageSubject:
        key = int(self._random.integers(0, self._keys))
        endpoint, model = _ENDPOINTS[int(self._random.integers(0, len(_ENDPOINTS)))]
        return usage_pb2.UsageSubject(
            project=f"team-{key % 50}",
            key=f"key-{key:06d}",
            endpoint=endpoint,
            version=f"models/{model}/versions/1",
            digest="ab" * 32,
            kind=usage_pb2.USAGE_KIND_REQUEST,
        )


_ENDS = [
    usage_pb2.USAGE_OUTCOME_OK,
    usage_pb2.USAGE_OUTCOME_CANCELLED,
    usage_pb2.USAGE_OUTCOME_FAILED,
]
_CHANCES = [0.96, 0.035, 0.005]
_SETS = 8
_COLUMNS = {
    "duration_ns": 10**9,
    "queue_ns": 10**6,
    "compute_ns": 10**8,
    "input_tokens": 1000,
    "output_tokens": 500,
    "request_bytes": 4000,
    "response_bytes": 2000,
}
