"""Batches of usage for tests: rows in words, as the store takes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from services.metering.domain.usage import (
    COLUMNS,
    Kind,
    Outcome,
    Subject,
    Telemetry,
    UsageBatch,
    check_batch,
)

START_NS = 1_795_000_000 * 10**9  # in November 2026
PROJECT = Subject("acme", "k1", "chat", "smol", "1", "ab" * 32, Kind.REQUEST, "default")


@dataclass(frozen=True, kw_only=True)
class Told:
    """One reported attempt."""

    request: int  # its id is this number
    subject: Subject = PROJECT
    outcome: Outcome = Outcome.OK
    attempt: int = 1
    part: int = 0
    start_ns: int = START_NS
    duration_ns: int = 1_000_000
    numbers: dict[str, int] = field(default_factory=dict)


def request_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def batch_of(
    rows: Sequence[Told],
    *,
    source: str = "outbox-1",
    first: int = 0,
    telemetry: Sequence[Telemetry] = (),
) -> UsageBatch:
    """A checked batch of rows that were reported one after the other."""
    subjects = list(dict.fromkeys(row.subject for row in rows))

    def number(row: Told, name: str) -> int:
        if name in {"part", "attempt", "outcome", "start_ns", "duration_ns"}:
            return int(getattr(row, name))
        return row.numbers.get(name, 0)

    return check_batch(
        UsageBatch(
            source=source,
            first_sequence=first,
            worker="w1",
            pool="default",
            subjects=subjects,
            subject=np.array([subjects.index(row.subject) for row in rows], dtype=np.int64),
            request_ids=b"".join(request_id(row.request) for row in rows),
            columns={
                name: np.array([number(row, name) for row in rows], dtype=np.int64)
                for name in COLUMNS
            },
            telemetry=telemetry,
        )
    )
