"""The facts that hold, in the order of their last changes, and those that begin or end by the clock."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from services.metering.domain.policy import Fact, FactKey, Span
from services.rpc.errors import OutOfRangeError

KEPT_REMOVALS = 10_000
_SECONDS_BEFORE = 1_700_000_000  # since 1970, when nothing of this ran
_SPARE_PLANS = 64  # stale plans that are not worth clearing


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A fact as it is now; None: it no longer holds."""

    key: FactKey
    fact: Fact | None
    revision: int = field(default=0, compare=False)  # when it became so


def first_revision(microseconds: int, process: int | None) -> int:
    """Where a process's revisions begin, so that none of another process is taken for one of them.

    Args:
        microseconds: now, since 1970.
        process: its number among those that run at once; None: it is the only one. Each has 2^24 revisions in a
            second of its own, and those that start in one second have others.
    """
    if process is None:
        return microseconds
    return (microseconds // 10**6 - _SECONDS_BEFORE << 32) + (process % 256 << 24)


class PolicyTable:
    """Holds each fact once, so a reader however far behind costs a list of references at most.

    Revisions begin where `first_revision` says. Facts that went are remembered up to a number; who is behind the
    first forgotten one must begin again.
    """

    def __init__(self, first_revision: int, kept_removals: int = KEPT_REMOVALS) -> None:
        self.revision = first_revision
        self._oldest = first_revision
        self._kept = kept_removals
        self._entries: dict[FactKey, PolicyChange] = {}  # a changed one moves to the end
        self._removals = 0
        self._planned: dict[FactKey, Span] = {}  # those that the clock will change
        self._due: list[tuple[datetime, int, FactKey]] = []  # some of them are stale
        self._counted = 0

    def __len__(self) -> int:
        """How many facts hold."""
        return len(self._entries) - self._removals

    @property
    def planned(self) -> int:
        """How many facts the clock will change."""
        return len(self._planned)

    def put(self, spans: Iterable[Span], now: datetime) -> bool:
        """Take what is said of some facts in place of what was. Whether anything changed for readers."""
        revision = self.revision + 1
        changed = False
        for span in spans:
            self._plan(span, now)
            changed |= self._set(span.key, span.at(now), revision)
        if changed:
            self.revision = revision
        return changed

    def advance(self, now: datetime) -> bool:
        """Apply what has begun or ended by `now`. Whether anything changed for readers."""
        spans: dict[FactKey, Span] = {}
        while self._due and self._due[0][0] <= now:
            when, _, key = heapq.heappop(self._due)
            if self._is_planned(when, key):
                spans[key] = self._planned[key]
        return self.put(spans.values(), now)

    def _is_planned(self, when: datetime, key: FactKey) -> bool:
        """Whether the fact still changes then; one that was replaced meanwhile has a plan of its own."""
        span = self._planned.get(key)
        return span is not None and when in (span.begins, span.ends)

    def next_change(self) -> datetime | None:
        """When `advance` may have something to do; None: never."""
        return self._due[0][0] if self._due else None

    def snapshot(self) -> list[PolicyChange]:
        """All facts that hold."""
        held = [change for change in self._entries.values() if change.fact is not None]
        return sorted(held, key=lambda change: change.key[0].value)

    def changes(self, after: int) -> list[PolicyChange]:
        """What changed after a revision, the oldest first.

        OutOfRangeError with reason REVISION_UNAVAILABLE if that is too long ago, or of another process.
        """
        if not self._oldest <= after <= self.revision:
            where = "lies in the future" if after > self.revision else "is no longer kept"
            raise OutOfRangeError(
                f"after_revision: {after} {where}; allowed: {self._oldest} to {self.revision}, or 0 to"
                " begin again",
                reason="REVISION_UNAVAILABLE",
                metadata={
                    "after_revision": str(after),
                    "oldest": str(self._oldest),
                    "newest": str(self.revision),
                },
            )
        return list(self._newer(after))[::-1]

    def _newer(self, after: int) -> Iterator[PolicyChange]:
        for change in reversed(self._entries.values()):
            if change.revision <= after:
                return
            yield change

    def _set(self, key: FactKey, fact: Fact | None, revision: int) -> bool:
        known = self._entries.get(key)
        if (None if known is None else known.fact) == fact:
            return False
        self._entries.pop(key, None)
        self._entries[key] = PolicyChange(key, fact, revision)
        was_removal = known is not None and known.fact is None
        self._removals += (fact is None) - was_removal
        if self._removals > 2 * self._kept:
            self._forget_removals()
        return True

    def _forget_removals(self) -> None:
        """Drop the oldest, down to the number that is kept."""
        gone = [key for key, change in self._entries.items() if change.fact is None]
        for key in gone[: len(gone) - self._kept]:
            self._oldest = self._entries.pop(key).revision
            self._removals -= 1

    def _plan(self, span: Span, now: datetime) -> None:
        due = span.next_change(now)
        if due is None:
            self._planned.pop(span.key, None)
            return
        self._planned[span.key] = span
        self._counted += 1
        heapq.heappush(self._due, (due, self._counted, span.key))
        if len(self._due) > 2 * len(self._planned) + _SPARE_PLANS:
            self._clear_plans()

    def _clear_plans(self) -> None:
        """Drop the stale ones; those whose time has come by now stay: `advance` has not applied them yet."""
        waiting = {(when, key) for when, _, key in self._due if self._is_planned(when, key)}
        # Numbered, for keys can't be compared, and some begin or end at the same moment.
        self._due = [(when, number, key) for number, (when, key) in enumerate(waiting)]
        heapq.heapify(self._due)
