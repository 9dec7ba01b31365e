"""Prometheus metrics of versions; label values are only those of versions that are loaded, and leave with them."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.worker.domain.counters import Outcome

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class PrometheusMeter:
    """Meter in a Prometheus registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Declare the metrics; each name once per registry."""
        version = ("version",)
        self.calls = Counter(
            "inferplane_calls",
            "Calls by how they ended.",
            ("version", "outcome"),
            registry=registry,
        )
        self.duration = Histogram(
            "inferplane_call_seconds",
            "Time from a call's arrival to its end.",
            version,
            buckets=_SECONDS,
            registry=registry,
        )
        self.queue = Histogram(
            "inferplane_queue_seconds",
            "Time that a request waited for the session.",
            version,
            buckets=_SECONDS,
            registry=registry,
        )
        self.rows = Histogram(
            "inferplane_batch_rows",
            "Rows computed at once.",
            version,
            buckets=_ROWS,
            registry=registry,
        )
        self.compute = Histogram(
            "inferplane_compute_seconds",
            "Time that one batch took.",
            version,
            buckets=_SECONDS,
            registry=registry,
        )

        self.depth = Gauge(
            "inferplane_queued_rows", "Rows that wait for the session.", version, registry=registry
        )

    def version(self, name: str) -> "PrometheusVersionMeter":
        """The meter of one version."""
        return PrometheusVersionMeter(self, name)


class PrometheusVersionMeter:
    """VersionMeter whose label look-ups are done once, here."""

    def __init__(self, meter: PrometheusMeter, name: str) -> None:
        self._meter = meter
        self._name = name
        self._count = {o: meter.calls.labels(name, o.value).inc for o in Outcome}
        self._duration = meter.duration.labels(name).observe
        self._queue = meter.queue.labels(name).observe
        self._rows = meter.rows.labels(name).observe
        self._compute = meter.compute.labels(name).observe

    def called(self, outcome: Outcome, seconds: float) -> None:
        """One call ended."""
        self._count[outcome]()
        self._duration(seconds)

    def waited(self, seconds: float) -> None:
        """One request waited that long in the queue."""
        self._queue(seconds)

    def computed(self, rows: int, seconds: float) -> None:
        """One batch was computed."""
        self._rows(rows)
        self._compute(seconds)

    def watch_queue(self, rows: Callable[[], int]) -> None:
        """Where to look how many rows wait, whenever somebody wants to know."""
        self._meter.depth.labels(self._name).set_function(rows)

    def close(self) -> None:
        """The version is gone: its labels go too."""
        meter = self._meter
        for outcome in Outcome:
            meter.calls.remove(self._name, outcome.value)
        for metric in (meter.duration, meter.queue, meter.rows, meter.compute, meter.depth):
            metric.remove(self._name)
