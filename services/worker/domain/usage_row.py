"""What is counted of one request, as bytes that another process can read: a row of the table and of the log.

Rows have a fixed size and are written where they lie. What changes while a request runs is one word each, so that a
reader finds the old value or the new one whenever the writer dies.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Outcome(IntEnum):
    """How a request ended; numbers are those of UsageOutcome."""

    OK = 1
    FAILED = 2
    CANCELLED = 3
    DEADLINE = 4
    ABORTED = 5  # its worker died


class UsageKind(IntEnum):
    """Why a request was computed; numbers are those of UsageKind."""

    REQUEST = 1
    SHADOW = 2
    BATCH = 3


@dataclass(frozen=True, slots=True)
class UsageSubject:
    """What many requests have in common."""

    project: str
    key: str
    endpoint: str
    version: str  # `models/{model}/versions/{version}`
    digest: str
    kind: UsageKind = UsageKind.REQUEST


class Opened(NamedTuple):
    """What is known of a request when it is admitted; a named tuple, since one is made for each."""

    request_id: bytes  # 16
    subject: int
    part: int = 0  # of a stream of requests
    attempt: int = 1  # Envoy's count
    input_tokens: int = 0
    rows: int = 0
    request_bytes: int = 0


class Ended(NamedTuple):
    """What is known once it has ended."""

    duration_ns: int
    outcome: Outcome
    queue_ns: int = 0
    compute_ns: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    response_bytes: int = 0
    from_cache: bool = False
    preemptions: int = 0


ROW_BYTES = 128
# The state is the first word. A row that has ended has its number and this.
FREE, OPEN, FIRST_ENDED = 0, 1, 2
# From the second word on; all that is told at the end is zero until then.
OPENING = struct.Struct("=16sQIIQQQQ48xQ")
OPENING_AT = 8
ENDING = struct.Struct("=QQQQQQBBHI")
ENDING_AT = ROW_BYTES - ENDING.size
# Words of 8 bytes, from the row's beginning.
START_WORD = 3
DURATION_WORD, QUEUE_WORD, COMPUTE_WORD = 9, 10, 11
TOKENS_WORD = 13  # output tokens so far
BYTES_WORD = 14  # bytes of the answer so far
OUTCOME_WORD = 15  # in its first byte

# A row as numpy reads it.
ROW = np.dtype(
    [
        ("state", np.uint64),
        ("request_id", "V16"),
        ("start_ns", np.uint64),
        ("subject", np.uint32),
        ("part", np.uint32),
        ("attempt", np.uint64),
        ("input_tokens", np.uint64),
        ("rows", np.uint64),
        ("request_bytes", np.uint64),
        ("duration_ns", np.uint64),
        ("queue_ns", np.uint64),
        ("compute_ns", np.uint64),
        ("cached_tokens", np.uint64),
        ("output_tokens", np.uint64),
        ("response_bytes", np.uint64),
        ("outcome", np.uint8),
        ("from_cache", np.uint8),
        ("spare", np.uint16),
        ("preemptions", np.uint32),
    ]
)


Rows = npt.NDArray[np.void]


@dataclass(slots=True)
class UsageRows:
    """Rows that follow each other, and what they name."""

    first: int  # number of the first
    rows: Rows
    subjects: Mapping[int, UsageSubject]
    told: Mapping[int, bytes] = field(
        default_factory=dict
    )  # encoded UsageTelemetry, by the row's number

    @property
    def next(self) -> int:
        """Number of the row after the last."""
        return self.first + len(self.rows)

    @property
    def ended_ns(self) -> int:
        """When the first of them ended."""
        return int(self.rows["start_ns"][0] + self.rows["duration_ns"][0])

    def after(self, number: int) -> "UsageRows":
        """Those from this number on."""
        return self._part(number, self.next)

    def before(self, number: int) -> "UsageRows":
        """Those with smaller numbers."""
        return self._part(self.first, number)

    def _part(self, first: int, following: int) -> "UsageRows":
        told = {number: data for number, data in self.told.items() if first <= number < following}
        rows = self.rows[first - self.first : following - self.first]
        return UsageRows(first, rows, self.subjects, told)
