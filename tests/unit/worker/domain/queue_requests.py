"""Requests for queues that tests move through time by hand."""

from collections.abc import Hashable
from typing import Any

from services.worker.domain.batch import BatchLimits, BatchQueue, Terms, Waiting
from services.worker.domain.ragged import Padding


def queue(padding: Padding | None = None, **limits: Any) -> BatchQueue:
    """A queue with small bounds."""
    bounds: dict[str, Any] = {"max_rows": 4, "max_queued_rows": 100, "max_queued_bytes": 1000}
    return BatchQueue(BatchLimits(**(bounds | limits)), padding)


def request(
    rows: int = 1,
    *,
    at: float = 0.0,
    group: Hashable = "g",
    deadline: float | None = None,
    size: int = 1,
    **terms: Any,
) -> Waiting:
    """One request; `terms`: tenant, level, timeout, lengths, area."""
    made = Terms(outputs=(), rows=rows, size=size, group=group, **terms)
    return Waiting(made, {}, at, deadline)


def admitted(q: BatchQueue, *requests: Waiting) -> list[Waiting]:
    """These in the queue, in order."""
    for r in requests:
        q.admit(r)
    q.check()
    return list(requests)


def drained(q: BatchQueue, now: float = 0.0) -> list[list[Waiting]]:
    """Batches until nothing waits."""
    batches = []
    while len(q):
        batches.append(q.take(now).batch)
        q.check()
    return batches
