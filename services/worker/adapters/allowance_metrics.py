"""Budgets at this worker as Prometheus metrics, read when they are scraped."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.worker.drivers.allowance import AllowanceCounts, Allowances


class AllowanceMetrics(Collector):
    """The only label is the window's kind: neither budgets nor callers make series."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances

    def collect(self) -> Iterable[Metric]:
        counts = self._allowances.counts
        for name, text, value in _counters(counts):
            yield CounterMetricFamily(f"inferplane_worker_{name}", text, value=value)
        refused = CounterMetricFamily(
            "inferplane_worker_budget_refused",
            "Requests refused for a budget, by its window.",
            labels=["window"],
        )
        for window, count in counts.refused.items():
            refused.add_metric([window], count)
        yield refused
        yield GaugeMetricFamily(
            "inferplane_worker_budget_callers",
            "Callers whose budgets are remembered.",
            value=len(self._allowances.callers),
        )
        yield GaugeMetricFamily(
            "inferplane_worker_budget_leases",
            "Budgets with a lease here.",
            value=len(self._allowances.active),
        )


def _counters(counts: AllowanceCounts) -> Iterable[tuple[str, str, int]]:
    yield "lease_exchanges", "Exchanges with metering.", counts.exchanges
    yield "lease_failures", "Exchanges without an answer.", counts.failures
    yield "budget_waits", "Requests that waited for an exchange.", counts.waits
    yield "budget_unmetered", "Requests let in without leases: metering was away.", counts.unmetered
    yield (
        "budget_shadow_refused",
        "Requests that a shadow budget would refuse.",
        counts.shadow_refused,
    )
