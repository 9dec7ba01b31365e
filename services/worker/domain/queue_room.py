"""Whether a queue takes a request: by rows and bytes, by the share of its tenant, by how long it would wait."""

from dataclasses import dataclass

from services.rpc.errors import ResourceExhaustedError
from services.worker.domain.waiting import Waiting

_SHORTEST_RETRY = 0.01  # seconds
# A tenant may hold so many times what is still free, so that free room never ends for others: one alone gets four
# fifths of the queue, two get four ninths each.
_TIMES_FREE = 4


def easy(rows: int, size: int) -> tuple[int, int]:
    """Rows and bytes up to which neither bound nor share can refuse, so that nothing else need be looked at."""
    return rows * _TIMES_FREE // (_TIMES_FREE + 1), size * _TIMES_FREE // (_TIMES_FREE + 1)


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """What a queue may hold."""

    rows: int
    size: int  # bytes
    wait: float  # seconds; 0: no bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a queue holds."""

    rows: int
    size: int
    own_rows: int  # of the same tenant
    own_size: int
    wait: float  # seconds that the request would wait


def check(request: Waiting, held: Held, bounds: QueueBounds) -> None:
    """Raise ResourceExhaustedError, with a hint when to come back, if there is no room."""
    terms = request.terms
    _check_unit("rows", terms.places, held.rows, bounds.rows, held.wait)
    _check_unit("bytes", terms.size, held.size, bounds.size, held.wait)
    if terms.tenant:
        _check_share("rows", (terms.places, held.own_rows), bounds.rows - held.rows, held.wait)
        _check_share("bytes", (terms.size, held.own_size), bounds.size - held.size, held.wait)
    if bounds.wait and held.wait > bounds.wait:
        raise _too_long(held.wait, bounds.wait, "max_queue_wait")
    if request.deadline is not None and held.wait > request.deadline - request.arrived:
        raise _too_long(held.wait, max(0.0, request.deadline - request.arrived), "the deadline")


def _check_unit(unit: str, more: int, held: int, limit: int, wait: float) -> None:
    if held + more > limit:
        raise ResourceExhaustedError(
            f"the queue is full: {held} {unit} wait; allowed: {limit}",
            reason="QUEUE_FULL",
            metadata={"unit": unit, "waiting": str(held), "limit": str(limit)},
            retry_after=max(_SHORTEST_RETRY, wait),
        )


def _check_share(unit: str, own: tuple[int, int], free: int, wait: float) -> None:
    more, held = own
    limit = _TIMES_FREE * free
    if held and held + more > limit:
        raise ResourceExhaustedError(
            f"this project's part of the queue is full: {held} {unit} of it wait; allowed now: {limit},"
            f" {_TIMES_FREE} times what is free",
            reason="QUEUE_SHARE_FULL",
            metadata={"unit": unit, "waiting": str(held), "limit": str(limit)},
            retry_after=max(_SHORTEST_RETRY, wait),
        )


def _too_long(wait: float, allowed: float, what: str) -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"it would wait about {wait:.3f} s; allowed: {allowed:.3f} s ({what})",
        reason="QUEUE_TOO_LONG",
        metadata={"wait_seconds": f"{wait:.3f}", "limit_seconds": f"{allowed:.3f}"},
        retry_after=max(_SHORTEST_RETRY, wait - allowed),
    )
