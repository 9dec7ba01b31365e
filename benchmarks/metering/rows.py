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
        random, batch = self._random, request.batch
        subjects = min(_PER_BATCH, self._keys * len(_ENDPOINTS))
        batch.subjects.extend(self._subject() for _ in range(subjects))
        start = self._begin_ns + int(progress * self._span_ns)
        batch.subject.extend(random.integers(0, subjects, rows).tolist())
        batch.request_ids = os.urandom(16 * rows)
        # Nearly all are well; some fail, some are told of by a second attempt.
        batch.outcome.extend(
            random.choice([1, 1, 1, 1, 1, 1, 1, 1, 3, 2], rows, p=_OUTCOMES).tolist()
        )
        batch.attempt.extend(np.where(random.random(rows) < 0.002, 2, 1).tolist())
        batch.start_ns.extend((start + random.integers(0, 10**10, rows)).tolist())
        for name, largest in _COLUMNS.items():
            getattr(batch, name).extend(random.integers(1, largest, rows).tolist())
        self._sent += rows
        return request.SerializeToString()

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


_OUTCOMES = [0.12] * 8 + [0.035, 0.005]
_COLUMNS = {
    "duration_ns": 10**9,
    "queue_ns": 10**6,
    "compute_ns": 10**8,
    "input_tokens": 1000,
    "output_tokens": 500,
    "request_bytes": 4000,
    "response_bytes": 2000,
}
