"""All that is counted of one version: plain numbers, touched once for each call and once for each run.

Prometheus, Triton's statistics and heartbeats read them when somebody asks; nothing is looked up or locked before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.counters import Counters, Outcome
from services.worker.domain.histogram import ROWS, SECONDS, Histogram

_MOST_SIZES = 1024  # of batches, that are told apart


@dataclass(slots=True)
class Span:
    """A number of events and how long they took together."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        """Count one event, or several that took so long together."""
        self.count += count
        self.ns += ns


@dataclass(slots=True)
class SizeStatistics:
    """Runs of one number of rows."""

    count: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0


def _seconds() -> Histogram:
    return Histogram(SECONDS)


def _none_waits() -> int:
    return 0


@dataclass(slots=True)
class VersionStatistics:
    """Totals since the version was assigned to this worker."""

    # Calls, by the one who answers them.
    outcomes: dict[Outcome, Span] = field(default_factory=lambda: {o: Span() for o in Outcome})
    call_seconds: Histogram = field(default_factory=_seconds)  # however they ended
    # Runs. What a run took counts for each request in it, as in Triton; `sizes` has it once.
    rows: int = 0
    runs: int = 0
    requests: int = 0  # that were computed
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0
    sizes: dict[int, SizeStatistics] = field(default_factory=dict)  # by rows
    cells: int = 0  # elements of padded inputs
    padded_cells: int = 0
    last_ns: int = 0  # since the epoch; 0: never
    queue_seconds: Histogram = field(default_factory=_seconds)
    compute_seconds: Histogram = field(default_factory=_seconds)
    # The response cache.
    cache_hit: Span = field(default_factory=Span)
    cache_miss: Span = field(default_factory=Span)
    # What is so now: asked when somebody wants to know.
    queued_rows: Callable[[], int] = _none_waits
    queued_requests: Callable[[], int] = _none_waits
    sequences: Callable[[], int] = _none_waits  # that have state
    sequence_bytes: Callable[[], int] = _none_waits
    cache_bytes: Callable[[], int] = _none_waits

    def called(self, outcome: Outcome, seconds: float) -> None:
        """One call ended."""
        span = self.outcomes[outcome]
        span.count += 1
        span.ns += int(seconds * 1e9)
        self.call_seconds.add(seconds)

    def answered(self, durations: Sequence[float]) -> None:
        """Several calls ended well, in so many seconds each."""
        span = self.outcomes[Outcome.SUCCEEDED]
        span.count += len(durations)
        span.ns += int(sum(durations) * 1e9)
        self.call_seconds.add_all(durations)

    def computed(self, batch: ComputedBatch, now_ns: int) -> None:
        """One run gave answers; `now_ns` is since the epoch."""
        waits = batch.waits
        requests = len(waits)
        shares = requests or 1  # a later part of a split request adds to what its request took
        input_ns, infer_ns, output_ns = batch.input_ns, batch.infer_ns, batch.output_ns
        self.rows += batch.rows
        self.runs += 1
        self.last_ns = now_ns
        self.requests += requests
        self.input_ns += input_ns * shares
        self.infer_ns += infer_ns * shares
        self.output_ns += output_ns * shares
        self.queue_seconds.add_all(waits)
        self.compute_seconds.add((input_ns + infer_ns + output_ns) / 1e9)
        size = self.sizes.get(batch.rows) or self._new_size(batch.rows)
        size.count += 1
        size.input_ns += input_ns
        size.infer_ns += infer_ns
        size.output_ns += output_ns
        if batch.cells:
            self.cells += batch.cells
            self.padded_cells += batch.padded_cells

    def written(self, queue_seconds: float, seconds: float, now_ns: int) -> None:
        """A text was written in so many seconds, after a wait of `queue_seconds`; `now_ns` is since the epoch."""
        ns = int(seconds * 1e9)
        self.rows += 1
        self.runs += 1
        self.requests += 1
        self.infer_ns += ns
        self.last_ns = now_ns
        self.queue_seconds.add(queue_seconds)
        self.compute_seconds.add(seconds)

    @property
    def queue(self) -> Span:
        """Waiting of the requests that were computed."""
        return Span(self.requests, int(self.queue_seconds.total * 1e9))

    @property
    def compute_input(self) -> Span:
        """Putting batches together."""
        return Span(self.requests, self.input_ns)

    @property
    def compute_infer(self) -> Span:
        """Runs of the session."""
        return Span(self.requests, self.infer_ns)

    @property
    def compute_output(self) -> Span:
        """Taking batches apart."""
        return Span(self.requests, self.output_ns)

    def counters(self) -> Counters:
        """Totals for a heartbeat."""
        calls = self.outcomes
        return Counters(
            succeeded=calls[Outcome.SUCCEEDED].count,
            failed=calls[Outcome.FAILED].count + calls[Outcome.INVALID].count,
            cancelled=calls[Outcome.CANCELLED].count,
            rejected=calls[Outcome.REJECTED].count,
            duration_us=calls[Outcome.SUCCEEDED].ns // 1000,
        )

    def batch_rows(self) -> Histogram:
        """Runs by their rows."""
        histogram = Histogram(ROWS)
        for rows, size in list(self.sizes.items()):
            histogram.add(rows, size.count)
        return histogram

    def failures(self) -> Span:
        """Calls that ended with an error, whosever fault."""
        spans = [
            span for outcome, span in self.outcomes.items() if outcome is not Outcome.SUCCEEDED
        ]
        return Span(sum(span.count for span in spans), sum(span.ns for span in spans))

    def _new_size(self, rows: int) -> SizeStatistics:
        # Callers choose the rows where batches have no bound: what is too much is told as the largest.
        key = rows if len(self.sizes) < _MOST_SIZES else max(self.sizes)
        return self.sizes.setdefault(key, SizeStatistics())
