"""How calls ended: totals of one version since the worker started."""

from dataclasses import dataclass
from enum import Enum

from services.rpc.errors import Kind


class Outcome(Enum):
    """How one call ended; values are label values of metrics."""

    SUCCEEDED = "succeeded"
    INVALID = "invalid"  # the request was wrong
    FAILED = "failed"  # we were wrong
    CANCELLED = "cancelled"  # by the caller, or past its deadline
    REJECTED = "rejected"  # the queue was full


_OF_KIND = {
    Kind.INVALID_ARGUMENT: Outcome.INVALID,
    Kind.CANCELLED: Outcome.CANCELLED,
    Kind.DEADLINE_EXCEEDED: Outcome.CANCELLED,
    Kind.RESOURCE_EXHAUSTED: Outcome.REJECTED,
}


def outcome_of(kind: Kind) -> Outcome:
    """The outcome of a call that ended with an error of this kind."""
    return _OF_KIND.get(kind, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals as heartbeats report them."""

    succeeded: int = 0
    failed: int = 0  # invalid requests too
    cancelled: int = 0
    rejected: int = 0
    duration_us: int = 0  # of answered calls, from arrival to answer
