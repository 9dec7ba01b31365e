"""Texts that wait for their turn: by priority, within one tenants take turns by what was computed for them.

Each tenant has a counter of tokens computed, and the one with the least goes first; who comes after being away starts
where the others are, so that nobody saves up turns and nobody's flood delays another's first request. Tokens are
counted as they are computed: what was cancelled or found in the cache is held against nobody.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from services.worker.llm.domain.continuation import Continuation

_by_number = attrgetter("number")


@dataclass(slots=True, eq=False)
class Share:
    """One tenant at one priority."""

    tenant: str
    level: _Level
    served: float = 0.0  # tokens
    texts: int = 0  # that wait or run
    waiting: list[Continuation] = field(default_factory=list)  # in order of arrival


@dataclass(slots=True, eq=False)
class _Level:
    """All tenants of one priority."""

    priority: int
    clock: float = 0.0  # served tokens of the tenant whose text began last
    shares: dict[str, Share] = field(default_factory=dict)


class WaitingLine:
    """Everything that waits, and each tenant's count of what runs or waits."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._levels: dict[int, _Level] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Continuation]:
        for level in self._levels.values():
            for share in level.shares.values():
                yield from share.waiting

    def share(self, tenant: str, priority: int) -> Share:
        """A tenant's share; with `join` and `leave` it lives as long as any of its texts."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level(priority)
        share = level.shares.get(tenant)
        if share is None:
            share = level.shares[tenant] = Share(tenant, level, served=level.clock)
        return share

    def join(self, text: Continuation) -> None:
        """A new text waits."""
        text.share.texts += 1
        self.put(text)

    def put(self, text: Continuation) -> None:
        """A text waits: behind those of its tenant that came before it."""
        insort(text.share.waiting, text, key=_by_number)
        self._count += 1

    def take(self, text: Continuation) -> None:
        """It waits no longer."""
        waiting = text.share.waiting
        del waiting[bisect_left(waiting, text.number, key=_by_number)]
        self._count -= 1

    def began(self, text: Continuation) -> None:
        """It was this text's turn: time goes on."""
        level = text.share.level
        level.clock = max(level.clock, text.share.served)

    def leave(self, text: Continuation) -> None:
        """It has ended, and waits no longer."""
        share, level = text.share, text.share.level
        share.texts -= 1
        if not share.texts:
            del level.shares[share.tenant]
            if not level.shares:
                del self._levels[level.priority]

    def in_order(self, passed_over: Container[str]) -> Iterator[Continuation]:
        """The next first. What was yielded may be taken; tenants in `passed_over` are left out from then on."""
        for priority in sorted(self._levels):
            yield from _turns(self._levels[priority], passed_over)

    def check(self) -> None:
        """Raise AssertionError if counts differ from what waits."""
        waiting = list(self)
        assert self._count == len(waiting) == len(set(waiting)), "texts that wait"
        for level in self._levels.values():
            assert level.shares, "a level of nobody"
            for share in level.shares.values():
                numbers = [text.number for text in share.waiting]
                assert numbers == sorted(numbers), "order of arrival"
                assert share.texts >= len(numbers), "texts of a tenant"


def _turns(level: _Level, passed_over: Container[str]) -> Iterator[Continuation]:
    heads = [(s.served, s.waiting[0].number, s, 0) for s in level.shares.values() if s.waiting]
    heapq.heapify(heads)
    while heads:
        _, number, share, place = heapq.heappop(heads)
        if share.tenant in passed_over:
            continue
        waiting = share.waiting
        yield waiting[place]
        if place < len(waiting) and waiting[place].number == number:
            place += 1  # it was not taken
        if place < len(waiting):
            heapq.heappush(heads, (share.served, waiting[place].number, share, place))
