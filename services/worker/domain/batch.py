"""The queue of one version: who waits, when a batch is due, who is in it. It has no clock: `now` is an argument.

Rows are counted, not requests. Requests of one group (equal row shapes) go together. An idle queue waits without
limit; the first request opens the window with one fixed deadline. Every admitted request leaves exactly once: taken,
late or by `leave`.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from services.rpc.errors import InferplaneError, ResourceExhaustedError
from services.worker.domain.contents import Array

Outputs = Mapping[str, Array]
Answer = Outputs | InferplaneError

_SHORTEST_RETRY = 0.01  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Bounds of one version's queue and batches."""

    max_rows: int  # computed at once; 1: no batching
    max_delay: float = 0.0  # seconds that the first request waits for company
    max_queued_rows: int
    max_queued_bytes: int


@dataclass(slots=True, eq=False, kw_only=True)
class Waiting:
    """One request in the queue; equal only to itself."""

    feeds: Mapping[str, Array]
    outputs: tuple[str, ...]
    rows: int
    size: int  # bytes of its inputs
    group: Hashable  # None: computed alone
    arrived: float
    deadline: float | None = None
    deliver: Callable[[Answer], None] | None = None  # whom to tell; None: the caller has gone

    def end(self, answer: Answer) -> None:
        """Tell the caller, once; nothing if it has been told or has gone."""
        deliver, self.deliver = self.deliver, None
        if deliver is not None:
            deliver(answer)


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What left the queue: requests to compute together, and those whose deadline has passed."""

    batch: list[Waiting]
    late: list[Waiting]

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return sum(request.rows for request in self.batch)


@dataclass(slots=True)
class BatchQueue:
    """Requests of one version that wait for the session."""

    limits: BatchLimits
    _waiting: dict[Waiting, None] = field(default_factory=dict)  # in order of arrival
    _group_rows: Counter[Hashable] = field(default_factory=Counter)
    _rows: int = 0
    _bytes: int = 0
    _seconds_per_row: float = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def rows(self) -> int:
        """Rows that wait."""
        return self._rows

    def admit(self, request: Waiting) -> None:
        """Take a request in, or raise ResourceExhaustedError at once, with a hint when to come back.

        An empty queue takes any request, so nothing is refused for ever.
        """
        limits = self.limits
        if self._waiting:
            # Requests without rows count too, or their number would have no bound.
            waiting = max(self._rows, len(self._waiting))
            if waiting + max(request.rows, 1) > limits.max_queued_rows:
                raise self._full("rows", waiting, limits.max_queued_rows)
            if self._bytes + request.size > limits.max_queued_bytes:
                raise self._full("bytes", self._bytes, limits.max_queued_bytes)
        self._waiting[request] = None
        self._rows += request.rows
        self._bytes += request.size
        self._group_rows[request.group] += request.rows

    def leave(self, request: Waiting) -> bool:
        """Take a request out whose caller has gone; False if it has left already."""
        if request not in self._waiting:
            return False
        self._remove(request)
        return True

    def due(self) -> float | None:
        """When the next batch is to be taken (in the past: now); None: nothing waits."""
        first = next(iter(self._waiting), None)
        if first is None:
            return None
        if first.group is None or self._group_rows[first.group] >= self.limits.max_rows:
            return first.arrived
        return first.arrived + self.limits.max_delay

    def take(self, now: float) -> Taken:
        """The oldest request and those that fit with it, up to max_rows; a single larger one goes alone."""
        batch: list[Waiting] = []
        late: list[Waiting] = []
        rows = 0
        for request in self._waiting:
            if request.deadline is not None and request.deadline <= now:
                late.append(request)
            elif not batch:
                batch.append(request)
                rows = request.rows
            elif request.group == batch[0].group and rows + request.rows <= self.limits.max_rows:
                batch.append(request)
                rows += request.rows
            if batch and (batch[0].group is None or rows >= self.limits.max_rows):
                break
        for request in (*batch, *late):
            self._remove(request)
        return Taken(batch, late)

    def take_all(self) -> list[Waiting]:
        """Everything that waits, in order; the queue is empty afterwards."""
        everything = list(self._waiting)
        for request in everything:
            self._remove(request)
        return everything

    def note_run(self, rows: int, seconds: float) -> None:
        """Learn how long rows take, for retry hints."""
        measured = seconds / max(rows, 1)
        old = self._seconds_per_row or measured
        self._seconds_per_row = 0.8 * old + 0.2 * measured

    def check(self) -> None:
        """Raise AssertionError if the sums are not those of the requests that wait."""
        groups: Counter[Hashable] = Counter()
        for request in self._waiting:
            groups[request.group] += request.rows
        if (
            self._rows != sum(r.rows for r in self._waiting)
            or self._bytes != sum(r.size for r in self._waiting)
            or +groups != +self._group_rows
        ):
            raise AssertionError("queue sums differ from the requests that wait")

    def _remove(self, request: Waiting) -> None:
        del self._waiting[request]
        self._rows -= request.rows
        self._bytes -= request.size
        left = self._group_rows[request.group] - request.rows
        if left:
            self._group_rows[request.group] = left
        else:  # groups come from clients' shapes: none may stay behind
            del self._group_rows[request.group]

    def _full(self, unit: str, waiting: int, limit: int) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"the queue is full: {waiting} {unit} wait; allowed: {limit}",
            reason="QUEUE_FULL",
            metadata={"unit": unit, "waiting": str(waiting), "limit": str(limit)},
            retry_after=max(_SHORTEST_RETRY, self._rows * self._seconds_per_row),
        )
