"""The order of requests of one priority: tenants take turns by rows, each tenant's go in order of arrival.

Start-time fair queuing: a request's tag is where its tenant's last one ended, or the level's clock if that is
later; the smallest tag goes first. With one tenant that is the order of arrival. A tenant with many requests has
many tags ahead; another's first request gets the clock's and passes them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from services.worker.domain.waiting import Waiting

_FEW = 64  # lines that may be empty before they are cleared away


@dataclass(slots=True, eq=False)
class Share:
    """What one tenant has in a level."""

    finish: float = 0.0  # tag at which its last request ends
    served: float = 0.0  # the same, of those that were taken
    requests: int = 0
    places: int = 0
    size: int = 0  # bytes


@dataclass(slots=True, eq=False)
class Group:
    """Requests that may share a run, of all tenants."""

    lines: dict[str, Line] = field(default_factory=dict)  # by tenant
    rows: int = 0

    def in_order(self) -> Iterable[Waiting]:
        """All that wait, the first to be computed first; those without a line among them have left."""
        if len(self.lines) == 1:
            return next(iter(self.lines.values())).requests
        lines = [line for line in self.lines.values() if line.waiting]
        if len(lines) == 1:
            return lines[0].requests
        return heapq.merge(*lines, key=_place)


@dataclass(slots=True, eq=False)
class Line:
    """One tenant's requests of one group, in order of arrival. Those that left are let go later."""

    group: Group
    share: Share
    level: Level
    requests: deque[Waiting] = field(default_factory=deque)
    waiting: int = 0
    is_listed: bool = False  # among the level's heads

    def __iter__(self) -> Iterator[Waiting]:
        for request in self.requests:
            if request.line is not None:
                yield request

    def head(self) -> Waiting | None:
        """The first that waits."""
        requests = self.requests
        while requests and requests[0].line is None:
            requests.popleft()
        return requests[0] if requests else None

    def trim(self) -> None:
        """Let go of those that left from its middle, once they are many."""
        if len(self.requests) > 2 * self.waiting + _FEW:
            self.requests = deque(self)

    def left(self, requests: int, places: int, size: int) -> None:
        """So many have left; keeps the sums."""
        share, level = self.share, self.level
        self.waiting -= requests
        self.group.rows -= places
        share.requests -= requests
        share.places -= places
        share.size -= size
        level.requests -= requests
        level.places -= places


@dataclass(slots=True, eq=False)
class Level:
    """Everything that waits with one priority."""

    clock: float = 0.0  # tag of the last request that was first in a batch
    requests: int = 0
    places: int = 0
    groups: dict[Hashable, Group] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)
    _lines: dict[tuple[Hashable, str], Line] = field(default_factory=dict)
    # Each line that has requests is here once, by its first; entries are put right when they come up.
    _heads: list[tuple[float, int, Line]] = field(default_factory=list)

    def add(self, request: Waiting, number: int) -> None:
        """Let a request wait; `number` grows with each."""
        terms = request.terms
        line = self._lines.get((terms.group, terms.tenant))
        if line is None:
            line = self._open(terms.group, terms.tenant)
        places = terms.rows or 1
        share = line.share
        tag = share.finish
        if tag < self.clock:
            tag = self.clock
        share.finish = tag + places
        request.tag, request.number, request.line = tag, number, line
        line.requests.append(request)
        line.waiting += 1
        line.group.rows += places
        share.requests += 1
        share.places += places
        share.size += terms.size
        self.requests += 1
        self.places += places
        if not line.is_listed:
            line.is_listed = True
            heapq.heappush(self._heads, (tag, number, line))

    def first(self) -> Waiting | None:
        """The request that is next."""
        heads = self._heads
        while heads:
            _, number, line = heads[0]
            head = line.head()
            if head is None:
                line.is_listed = False
                heapq.heappop(heads)
            elif head.number != number:
                heapq.heapreplace(heads, (head.tag, head.number, line))
            else:
                return head
        return None

    def begin(self, first: Waiting) -> None:
        """A batch with this first request is taken: time goes on."""
        if first.tag > self.clock:
            self.clock = first.tag

    def __iter__(self) -> Iterator[Waiting]:
        """All that wait, in fair order."""
        return heapq.merge(*(line for line in self._lines.values() if line.waiting), key=_place)

    def check(self) -> None:
        """Raise AssertionError if sums differ from what waits."""
        waiting = list(self)
        assert self.requests == len(waiting), "requests of a level"
        assert self.places == sum(r.terms.places for r in waiting), "places of a level"
        assert self.requests == sum(share.requests for share in self.shares.values())
        for tenant, share in self.shares.items():
            own = [r for r in waiting if r.terms.tenant == tenant]
            assert share.places == sum(r.terms.places for r in own), "places of a tenant"
            assert share.size == sum(r.terms.size for r in own), "bytes of a tenant"
        for key, group in self.groups.items():
            same = [r for r in waiting if r.terms.group == key]
            assert group.rows == sum(r.terms.places for r in same), "rows of a group"

    def _open(self, key: Hashable, tenant: str) -> Line:
        if len(self._lines) > 2 * self.requests + _FEW:
            self._tidy()  # groups come from clients' shapes: none may stay behind
        group = self.groups.setdefault(key, Group())
        share = self.shares.setdefault(tenant, Share())
        line = self._lines[key, tenant] = group.lines[tenant] = Line(group, share, self)
        return line

    def _tidy(self) -> None:
        for (key, tenant), line in list(self._lines.items()):
            if not line.waiting:
                del self._lines[key, tenant], self.groups[key].lines[tenant]
                line.is_listed = False
                if not self.groups[key].lines:
                    del self.groups[key]
        for tenant, share in list(self.shares.items()):
            if not share.requests:
                del self.shares[tenant]
        self._heads = [head for head in self._heads if head[2].waiting]
        heapq.heapify(self._heads)


def _place(request: Waiting) -> tuple[float, int]:
    return request.tag, request.number
