"""Budgets and leases as Prometheus metrics, read when they are scraped."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.metering.drivers.desk import Desk


class BudgetMetrics(Collector):
    """Plain numbers, no labels: neither budgets nor projects make series."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def collect(self) -> Iterable[Metric]:
        counts, book = self._desk.counts, self._desk.book
        for name, text, value in (
            ("budgets", "Budgets there are.", len(book.budgets)),
            ("lease_holders", "Workers whose leases live.", book.holders),
        ):
            yield GaugeMetricFamily(f"inferplane_metering_{name}", text, value=value)
        for name, text, count in (
            ("lease_exchanges", "Exchanges answered.", counts.exchanges),
            ("lease_saves", "Writes of accounts.", counts.saves),
            ("lease_ends", "Workers that did not renew in time.", counts.ended),
            ("budget_alerts", "Alerts given.", counts.alerts),
        ):
            yield CounterMetricFamily(f"inferplane_metering_{name}", text, value=count)
