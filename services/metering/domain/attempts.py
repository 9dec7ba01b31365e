"""Which of several reported attempts is the request: one wins, whatever the order in which they arrive."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NewType, TypeAlias

from services.metering.domain.usage import Outcome

RowId = NewType("RowId", int)
RequestKey: TypeAlias = tuple[bytes, int, bool]  # request id, part, whether a shadow


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What decides between rows of one request."""

    row: RowId
    key: RequestKey
    attempt: int
    outcome: Outcome
    start_ns: int
    duration_ns: int
    quantities: tuple[int, ...]  # decide where nothing else does, so that any order gives the same
    counts: bool  # False: stored, and has lost before

    @property
    def rank(self) -> tuple[int, ...]:
        """The least is the request: of those that were answered the one that ended first, for that one Envoy passed on;
        otherwise the last attempt, whose end the caller was told.
        """
        end = self.start_ns + self.duration_ns
        if self.outcome is Outcome.OK:
            return 0, end, self.attempt, *self.quantities
        return 1, -self.attempt, end, self.outcome, *self.quantities


@dataclass(frozen=True, slots=True)
class Loss:
    """A row gives way to another one."""

    loser: Attempt
    winner: RowId
    attempts: int  # the most that is known of the request


def may_have_rivals(attempt: int, outcome: Outcome) -> bool:
    """False of nearly all rows: of first attempts that were answered or whose caller went away."""
    return attempt > 1 or outcome not in {Outcome.OK, Outcome.CANCELLED}


def losses(stored: Iterable[Attempt], new: Iterable[Attempt]) -> Sequence[Loss]:
    """Who gives way, once new rows have come to those that are stored."""
    by_key: dict[RequestKey, list[Attempt]] = {}
    for attempt in (*stored, *new):
        by_key.setdefault(attempt.key, []).append(attempt)
    found = []
    for rivals in by_key.values():
        if max(attempt.attempt for attempt in rivals) == 1:
            continue  # attempts have different numbers: these came past the edge, with an id of the caller's
        running = [attempt for attempt in rivals if attempt.counts]
        winner = min(running, key=lambda attempt: (attempt.rank, attempt.row))
        known = max(attempt.attempt for attempt in rivals)
        found += [Loss(loser, winner.row, known) for loser in running if loser is not winner]
    return found
