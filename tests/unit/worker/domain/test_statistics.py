"""What is counted of a version, in plain numbers."""

from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.counters import Counters, Outcome
from services.worker.domain.histogram import Histogram
from services.worker.domain.statistics import Span, VersionStatistics


def batch(rows: int, *waits: float) -> ComputedBatch:
    return ComputedBatch(
        rows=rows, waits=waits, input_ns=10, infer_ns=100, output_ns=1, cells=8, padded_cells=2
    )


def test_calls_by_outcome() -> None:
    """Invalid requests count as failed; only answers count time for a heartbeat."""
    statistics = VersionStatistics()
    for outcome in Outcome:
        statistics.called(outcome, 0.5)
    assert statistics.counters() == Counters(1, 2, 1, 1, 500_000)
    assert statistics.failures() == Span(4, 2_000_000_000)
    assert sum(statistics.call_seconds.counts) == 5


def test_calls_of_a_batch_count_as_one_by_one() -> None:
    """Several at once leave the same numbers as each by itself."""
    together, alone = VersionStatistics(), VersionStatistics()
    together.answered([0.25, 0.5, 40.0])
    for seconds in (0.25, 0.5, 40.0):
        alone.called(Outcome.SUCCEEDED, seconds)
    assert together.outcomes == alone.outcomes
    assert together.call_seconds.counts == alone.call_seconds.counts
    assert together.call_seconds.total == alone.call_seconds.total


def test_a_run_counts_for_each_request_and_once_for_its_size() -> None:
    """Three requests with 4 rows: what the run took counts three times for requests, once for batches of 4."""
    statistics = VersionStatistics()
    statistics.computed(batch(4, 0.5, 0.25, 0.25), 77)
    statistics.computed(batch(4, 1.0), 78)
    assert (statistics.rows, statistics.runs, statistics.last_ns) == (8, 2, 78)
    assert statistics.queue == Span(4, 2_000_000_000)
    assert statistics.compute_infer == Span(4, 400)
    size = statistics.sizes[4]
    assert (size.count, size.input_ns, size.infer_ns, size.output_ns) == (2, 20, 200, 2)
    assert (statistics.cells, statistics.padded_cells) == (16, 4)
    assert statistics.batch_rows().total == 8
    assert sum(statistics.queue_seconds.counts) == 4


def test_a_request_in_parts_is_one_request() -> None:
    """Its later runs add their time, not another request."""
    statistics = VersionStatistics()
    statistics.computed(batch(4, 0.5), 1)
    statistics.computed(batch(2), 2)
    assert statistics.queue == Span(1, 500_000_000)
    assert statistics.compute_infer == Span(1, 200)
    assert (statistics.rows, statistics.runs, sorted(statistics.sizes)) == (6, 2, [2, 4])


def test_sizes_that_callers_choose_have_a_bound() -> None:
    """Of a thousand sizes each is told apart, those that come later are told as the largest."""
    statistics = VersionStatistics()
    for rows in range(2000):
        statistics.computed(batch(rows, 0.0), 1)
    assert len(statistics.sizes) == 1024
    assert statistics.sizes[1023].count == 977
    assert sum(size.count for size in statistics.sizes.values()) == statistics.runs == 2000


def test_a_histogram_counts_up_to_and_with_its_bounds() -> None:
    """A value on a bound belongs to it; what is above all counts last."""
    histogram = Histogram((1.0, 2.0))
    histogram.add_all([0.5, 1.0])
    histogram.add(1.5)
    histogram.add(9.0)
    assert histogram.cumulative() == [(1.0, 2), (2.0, 3), (float("inf"), 4)]
    assert histogram.total == 12.0
