"""Prometheus metrics of the versions that are loaded, made from their statistics whenever they are scraped.

Two families of names: ours, labelled by the version's resource name, and those that Triton's users have on their
dashboards, labelled by model and version.
"""

from collections.abc import Iterator
from math import isinf

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from services.rpc.names import VersionName
from services.worker.domain.counters import Outcome
from services.worker.domain.histogram import Histogram
from services.worker.domain.statistics import Span, VersionStatistics

Shown = list[tuple[VersionName, VersionStatistics]]

_REASONS = {
    "REJECTED": (Outcome.REJECTED,),
    "CANCELED": (Outcome.CANCELLED,),
    "BACKEND": (Outcome.FAILED,),
    "OTHER": (Outcome.INVALID,),
}


class PrometheusMeter(Collector):
    """Meter in a Prometheus registry; scraped in a thread of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Join the registry; once per registry."""
        self._shown: dict[VersionName, VersionStatistics] = {}
        registry.register(self)

    def show(self, name: VersionName, statistics: VersionStatistics) -> None:
        """The version is loaded."""
        self._shown[name] = statistics

    def hide(self, name: VersionName) -> None:
        """The version is gone: its labels go too."""
        self._shown.pop(name, None)

    def collect(self) -> Iterator[Metric]:
        """All metrics as of now."""
        shown = list(self._shown.items())
        yield from _calls(shown)
        yield from _runs(shown)
        yield from _cache(shown)
        yield from _sequences(shown)
        yield from _triton(shown)


def _calls(shown: Shown) -> Iterator[Metric]:
    calls = CounterMetricFamily(
        "inferplane_calls", "Calls by how they ended.", labels=("version", "outcome")
    )
    for name, of in shown:
        for outcome, span in of.outcomes.items():
            calls.add_metric((str(name), outcome.value), span.count)
    yield calls
    yield _histogram(
        "inferplane_call_seconds",
        "Time from a call's arrival to its end.",
        [(name, of.call_seconds) for name, of in shown],
    )


def _runs(shown: Shown) -> Iterator[Metric]:
    yield _histogram(
        "inferplane_queue_seconds",
        "Time that a request waited for the session.",
        [(name, of.queue_seconds) for name, of in shown],
    )
    yield _histogram(
        "inferplane_compute_seconds",
        "Time that one batch took.",
        [(name, of.compute_seconds) for name, of in shown],
    )
    yield _histogram(
        "inferplane_batch_rows",
        "Rows computed at once.",
        [(name, of.batch_rows()) for name, of in shown],
    )
    depth = _gauge("inferplane_queued_rows", "Rows that wait for the session.")
    cells = _counter("inferplane_cells", "Elements of inputs that may be padded.")
    padded = _counter("inferplane_padded_cells", "How many of them were padding.")
    for name, of in shown:
        depth.add_metric((str(name),), of.queued_rows())
        cells.add_metric((str(name),), of.cells)
        padded.add_metric((str(name),), of.padded_cells)
    yield from (depth, cells, padded)


def _sequences(shown: Shown) -> Iterator[Metric]:
    begun = _gauge("inferplane_sequences", "Sequences that have state.")
    size = _gauge("inferplane_sequence_bytes", "What their states occupy.")
    for name, of in shown:
        begun.add_metric((str(name),), of.sequences())
        size.add_metric((str(name),), of.sequence_bytes())
    yield from (begun, size)


def _cache(shown: Shown) -> Iterator[Metric]:
    hits = _counter("inferplane_cache_hits", "Requests answered from the response cache.")
    misses = _counter("inferplane_cache_misses", "Requests that it had no answer for.")
    size = _gauge("inferplane_cache_bytes", "What the kept answers occupy.")
    for name, of in shown:
        hits.add_metric((str(name),), of.cache_hit.count)
        misses.add_metric((str(name),), of.cache_miss.count)
        size.add_metric((str(name),), of.cache_bytes())
    yield from (hits, misses, size)


def _triton(shown: Shown) -> Iterator[Metric]:
    """Times are sums in microseconds; what a batch took counts for each request in it."""
    yield _of_triton(
        "nv_inference_request_success",
        "Requests that were answered, from the cache too.",
        [(name, of.outcomes[Outcome.SUCCEEDED].count) for name, of in shown],
    )
    failures = Metric("nv_inference_request_failure", "Requests that failed.", "unknown")
    for name, of in shown:
        for reason, outcomes in _REASONS.items():
            labels = {**_labels(name), "reason": reason}
            count = sum(of.outcomes[outcome].count for outcome in outcomes)
            failures.add_sample("nv_inference_request_failure", labels, count)
    yield failures
    yield _of_triton(
        "nv_inference_count", "Rows that were computed.", [(name, of.rows) for name, of in shown]
    )
    yield _of_triton(
        "nv_inference_exec_count",
        "Batches that were computed.",
        [(name, of.runs) for name, of in shown],
    )
    pending = GaugeMetricFamily(
        "nv_inference_pending_request_count",
        "Requests that wait for the session.",
        labels=("model", "version"),
    )
    for name, of in shown:
        pending.add_metric((name.model, name.version), of.queued_requests())
    yield pending
    for suffix, spans in _spans(shown).items():
        metric = f"nv_inference_{suffix}_duration_us"
        yield _of_triton(metric, f"Time of requests: {suffix}.", _micros(spans))
    for kind, spans in {
        "hit": [(name, of.cache_hit) for name, of in shown],
        "miss": [(name, of.cache_miss) for name, of in shown],
    }.items():
        plural = {"hit": "hits", "miss": "misses"}[kind]
        yield _of_triton(
            f"nv_cache_num_{plural}_per_model",
            f"Response cache {plural}.",
            [(name, span.count) for name, span in spans],
        )
        yield _of_triton(
            f"nv_cache_{kind}_duration_per_model",
            f"Time of response cache {plural}, in microseconds.",
            _micros(spans),
        )


def _spans(shown: Shown) -> dict[str, list[tuple[VersionName, Span]]]:
    return {
        "request": [(name, of.outcomes[Outcome.SUCCEEDED]) for name, of in shown],
        "queue": [(name, of.queue) for name, of in shown],
        "compute_input": [(name, of.compute_input) for name, of in shown],
        "compute_infer": [(name, of.compute_infer) for name, of in shown],
        "compute_output": [(name, of.compute_output) for name, of in shown],
    }


def _micros(spans: list[tuple[VersionName, Span]]) -> list[tuple[VersionName, int]]:
    return [(name, span.ns // 1000) for name, span in spans]


def _of_triton(name: str, text: str, values: list[tuple[VersionName, int]]) -> Metric:
    # As `counter` the client would write the type for `{name}_total`, a name that Triton's dashboards don't know.
    metric = Metric(name, text, "unknown")
    for version, value in values:
        metric.add_sample(name, _labels(version), value)
    return metric


def _labels(name: VersionName) -> dict[str, str]:
    return {"model": name.model, "version": name.version}


def _counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=("version",))


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=("version",))


def _histogram(
    name: str, text: str, histograms: list[tuple[VersionName, Histogram]]
) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(name, text, labels=("version",))
    for version, histogram in histograms:
        buckets = [
            ("+Inf" if isinf(bound) else str(bound), count)
            for bound, count in histogram.cumulative()
        ]
        metric.add_metric((str(version),), buckets, histogram.total)
    return metric
