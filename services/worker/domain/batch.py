"""The queue of one version: who waits, when a batch is due, who is in it. It has no clock: `now` is an argument.

Rows are counted, not requests. Requests of one group go together; within a priority tenants take turns by rows.
Every admitted request leaves exactly once: taken, late or by `leave`.
"""

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.worker.domain import queue_room
from services.worker.domain.company import Choice, choose
from services.worker.domain.fair_order import Level, Line
from services.worker.domain.queue_room import Held, QueueBounds
from services.worker.domain.ragged import Padding
from services.worker.domain.run_cost import CellCost, RowCost
from services.worker.domain.waiting import Answer, BatchSink, Outputs, Terms, Waiting

__all__ = [
    "Answer",
    "BatchLimits",
    "BatchQueue",
    "BatchSink",
    "Outputs",
    "Taken",
    "Terms",
    "Waiting",
]

_LOOK = 64  # requests that don't fit into what is left of a batch, before it goes as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Bounds of one version's queue and batches."""

    max_rows: int  # computed at once; 1: no batching
    max_delay: float = 0.0  # seconds that the first request waits for company
    preferred: tuple[int, ...] = ()  # rows at which a batch need not wait, ascending
    max_queued_rows: int
    max_queued_bytes: int
    max_wait: float = 0.0  # seconds; what would wait longer is refused; 0: no such bound
    least_rows: int = 0  # rows that may wait however long they take
    levels: int = 1  # of priority
    instances: int = 1  # batches computed at once


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What left the queue: requests to compute together, and those whose time has passed."""

    batch: list[Waiting]
    late: list[Waiting]
    rows: int = 0  # of the batch
    full: bool = False  # more waited than it could take


@dataclass(slots=True)
class BatchQueue:
    """Requests of one version that wait for a session."""

    limits: BatchLimits
    padding: Padding | None = None
    _levels: list[Level] = field(init=False)
    _sizes: tuple[int, ...] = field(init=False)  # of batches, from the largest
    _easy: tuple[int, int] = field(init=False)  # rows and bytes that no bound on them can refuse
    _requests: int = 0
    _places: int = 0
    _bytes: int = 0
    _number: int = 0  # of the request that came last
    _timeouts: list[tuple[float, int, Waiting]] = field(default_factory=list)
    _company: int = 0  # requests that were in flight when the last batch was taken
    _company_until: float = 0.0
    _row_cost: RowCost = field(default_factory=RowCost)
    _cell_cost: CellCost = field(default_factory=CellCost)

    def __post_init__(self) -> None:
        """Levels and sizes are the limits', in another form."""
        limits = self.limits
        self._levels = [Level() for _ in range(limits.levels)]
        sizes = {size for size in limits.preferred if size < limits.max_rows}
        self._sizes = tuple(sorted({*sizes, limits.max_rows}, reverse=True))
        self._easy = queue_room.easy(limits.max_queued_rows, limits.max_queued_bytes)

    def __len__(self) -> int:
        return self._requests

    @property
    def rows(self) -> int:
        """Rows that wait; a request without rows counts as one."""
        return self._places

    def admit(self, request: Waiting) -> None:
        """Take a request in, or raise ResourceExhaustedError at once, with a hint when to come back.

        An empty queue takes any request, so nothing is refused for ever.
        """
        terms = request.terms
        if self._requests:
            self._check_room(request)
        self._number += 1
        self._levels[terms.level].add(request, self._number)
        self._requests += 1
        self._places += terms.rows or 1
        self._bytes += terms.size
        if terms.timeout:
            self._note_timeout(request)

    def leave(self, request: Waiting) -> bool:
        """Take a request out whose caller has gone; False if it has left already."""
        line = request.line
        if line is None:
            return False
        self._remove(request, line)
        line.trim()
        if not line.share.requests:  # what was never computed is not held against its tenant
            line.share.finish = line.share.served
        return True

    def due(self, now: float, computing: int) -> float | None:
        """When the next batch is to be taken (`now` or before: at once); None: nothing waits.

        The window counts from the arrival of the batch's first request, and is kept open only while others may be
        expected: some are being computed, or more were in flight when the last batch was taken, less than a
        window ago, than wait now. A lone caller never waits.

        Args:
            now: of the clock by which requests arrived.
            computing: requests in batches that are being computed.
        """
        if not self._requests:
            return None
        delay = self.limits.max_delay
        if not delay:
            return now
        level = self._first_level()
        first = level.first() if level is not None else None
        assert first is not None
        if first.terms.group is None:
            return now
        if self._group_rows(first) >= self._sizes[-1]:
            return now
        if computing:
            return first.arrived + delay
        if self._requests < self._company and now < self._company_until:
            return min(first.arrived + delay, self._company_until)
        return now

    def take(self, now: float, computing: int = 0, idle: int = 1) -> Taken:
        """The first request in fair order and those that go with it; a single one larger than a batch goes alone.

        A batch has one of the preferred sizes if so many rows wait.

        Args:
            now: of the clock by which requests arrived.
            computing: requests in batches that are being computed.
            idle: instances that could compute now.
        """
        late: list[Waiting] = []
        while (level := self._first_level()) is not None:
            first = level.first()
            assert first is not None
            if _is_late(first, now):
                self._take_out([first], late)
                continue
            level.begin(first)
            self._company = self._requests + computing
            batch = self._batch(first, now, late, idle)
            rows = sum([request.terms.rows for request in batch])
            return Taken(batch, late, rows, self._requests > 0 or rows >= self.limits.max_rows)
        return Taken([], late)

    def take_all(self) -> list[Waiting]:
        """Everything that waits, in order; the queue is empty afterwards."""
        everything = [request for level in self._levels for request in level]
        everything.sort(key=lambda request: request.number)
        for request in everything:
            assert request.line is not None
            self._remove(request, request.line)
        self._timeouts.clear()
        return everything

    def next_timeout(self) -> float | None:
        """When the next request will have waited too long; None: none does."""
        timeouts = self._timeouts
        while timeouts and timeouts[0][2].line is None:
            heapq.heappop(timeouts)
        return timeouts[0][0] if timeouts else None

    def take_timed_out(self, now: float) -> list[Waiting]:
        """Those that have waited too long."""
        out: list[Waiting] = []
        while (due := self.next_timeout()) is not None and due <= now:
            self._take_out([heapq.heappop(self._timeouts)[2]], out)
        return out

    def note_run(
        self, taken: Taken, seconds: float, now: float, cells: tuple[int, float] = (0, 0.0)
    ) -> None:
        """Learn from a run that ended how long rows and cells take.

        Args:
            taken: what was computed.
            seconds: how long it took, from its leaving the queue.
            now: the time; its callers may be expected back for a window.
            cells: what `padding.area` gives for its rows, padding included, and how long the computing alone took.
        """
        self._row_cost.note(taken.rows, seconds, full=taken.full)
        if cells[0] and taken.rows <= self.limits.max_rows:
            self._cell_cost.note(*cells)
        self._company_until = now + self.limits.max_delay

    def wait(self, level: int, tenant: str) -> float:
        """About how long a request would wait that came now."""
        ahead = sum(other.places for other in self._levels[:level])
        own = self._levels[level]
        share = own.shares.get(tenant)
        # Tenants take turns: no more of the others goes before it than goes of its own.
        turns = (share.places if share else 0) * len(own.shares) + self.limits.max_rows
        ahead += min(own.places, turns)
        return ahead * self._row_cost.seconds / self.limits.instances

    def check(self) -> None:
        """Raise AssertionError if the sums are not those of the requests that wait."""
        waiting = [request for level in self._levels for request in level]
        for level in self._levels:
            level.check()
        assert self._requests == len(waiting), "requests"
        assert self._places == sum(request.terms.places for request in waiting), "rows"
        assert self._bytes == sum(request.terms.size for request in waiting), "bytes"

    def _check_room(self, request: Waiting) -> None:
        """Raise ResourceExhaustedError if there is no room for it; the usual case costs a few comparisons."""
        terms, limits = request.terms, self.limits
        rows, size = self._places + (terms.rows or 1), self._bytes + terms.size
        wait = self._places * self._row_cost.seconds / limits.instances
        if (
            rows <= self._easy[0]
            and size <= self._easy[1]
            and (not limits.max_wait or wait <= limits.max_wait)
            and (request.deadline is None or wait <= request.deadline - request.arrived)
        ):
            return
        share = self._levels[terms.level].shares.get(terms.tenant)
        held = Held(
            rows=self._places,
            size=self._bytes,
            own_rows=share.places if share else 0,
            own_size=share.size if share else 0,
            wait=self.wait(terms.level, terms.tenant),
        )
        may_wait = 0.0 if rows <= limits.least_rows else limits.max_wait
        bounds = QueueBounds(limits.max_queued_rows, limits.max_queued_bytes, may_wait)
        queue_room.check(request, held, bounds)

    def _note_timeout(self, request: Waiting) -> None:
        timeouts = self._timeouts
        if len(timeouts) > 2 * self._requests + _LOOK:
            timeouts[:] = [entry for entry in timeouts if entry[2].line is not None]
            heapq.heapify(timeouts)
        heapq.heappush(timeouts, (request.arrived + request.terms.timeout, request.number, request))

    def _first_level(self) -> Level | None:
        for level in self._levels:
            if level.requests:
                return level
        return None

    def _group_rows(self, first: Waiting) -> int:
        """Rows that wait and could go with a request: of its priority and those behind it."""
        key = first.terms.group
        groups = (level.groups.get(key) for level in self._levels[first.terms.level :])
        return sum(group.rows for group in groups if group is not None)

    def _batch(self, first: Waiting, now: float, late: list[Waiting], idle: int) -> list[Waiting]:
        batch: list[Waiting] = []
        if first.terms.group is None or first.terms.rows >= self.limits.max_rows:
            self._take_out([first], batch)
        elif self.padding is not None and first.terms.lengths:
            waiting = [r for r in self._others(first) if r.line is not None and r is not first]
            self._take_out([r for r in waiting if _is_late(r, now)], late)
            others = [r for r in waiting if r.line is not None]
            choice = Choice(self.limits.max_rows, idle, self._cell_cost.cells_per_run())
            self._take_out(choose(first, others, choice), batch)
        else:
            self._fill(first, now, batch, late)
        return batch

    def _others(self, first: Waiting) -> Iterable[Waiting]:
        """All of its group, in the order in which they are to be computed; some may have left."""
        if len(self._levels) == 1 and first.line is not None:
            return first.line.group.in_order()
        key = first.terms.group
        groups = [level.groups.get(key) for level in self._levels[first.terms.level :]]
        orders = [group.in_order() for group in groups if group is not None and group.rows]
        return orders[0] if len(orders) == 1 else itertools.chain(*orders)

    def _fill(self, first: Waiting, now: float, batch: list[Waiting], late: list[Waiting]) -> None:
        """Requests in fair order until the batch is full; those too large for what is left are passed over."""
        room = self.limits.max_rows
        if len(self._sizes) > 1:
            waiting = self._group_rows(first)
            room = next((size for size in self._sizes if first.rows <= size <= waiting), room)
        fitting: list[Waiting] = []
        gone: list[Waiting] = []
        passed = 0
        for request in self._others(first):
            if request.line is None:
                continue
            deadline = request.deadline
            if deadline is not None and deadline <= now:
                gone.append(request)
                continue
            rows = request.terms.rows
            if rows > room:
                passed += 1
                if passed > _LOOK:
                    break
                continue
            fitting.append(request)
            room -= rows
            if not room:
                break
        self._take_out(fitting, batch)
        if gone:
            self._take_out(gone, late)

    def _take_out(self, requests: list[Waiting], into: list[Waiting]) -> None:
        """Out of their lines; sums are kept once for each stretch of one line."""
        line: Line | None = None
        count = places = size = 0
        for request in requests:
            if request.line is not line:
                if line is not None:
                    self._left(line, count, places, size)
                line, count, places, size = request.line, 0, 0, 0
            assert line is not None
            request.line = None
            count += 1
            terms = request.terms
            places += terms.rows or 1
            size += terms.size
            line.share.served = request.tag + (terms.rows or 1)
        if line is not None:
            self._left(line, count, places, size)
        into += requests

    def _remove(self, request: Waiting, line: Line) -> None:
        request.line = None
        self._left(line, 1, request.terms.places, request.terms.size)

    def _left(self, line: Line, count: int, places: int, size: int) -> None:
        line.left(count, places, size)
        self._requests -= count
        self._places -= places
        self._bytes -= size


def _is_late(request: Waiting, now: float) -> bool:
    return request.deadline is not None and request.deadline <= now
