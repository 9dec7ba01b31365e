"""Prometheus metrics of usage on its way to metering; no labels."""

from collections.abc import Iterator
from time import time_ns

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from services.worker.adapters.usage_journal import FileJournal
from services.worker.drivers.usage_sender import UsageSender


class UsageMetrics(Collector):
    """Made whenever they are scraped, in a thread of its own."""

    def __init__(
        self, journal: FileJournal, sender: UsageSender, registry: CollectorRegistry
    ) -> None:
        """Join the registry; once per registry."""
        self._journal = journal
        self._sender = sender
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics as of now."""
        journal, sent = self._journal, self._sender.statistics
        oldest = sent.oldest_ns
        for name, text, value in (
            ("log_bytes", "Log of requests that metering has not taken.", journal.size),
            ("open_requests", "Requests that are being counted.", journal.open_requests),
            (
                "rows_waiting",
                "Rows that metering has not taken.",
                max(0, journal.next - sent.taken),
            ),
            (
                "oldest_seconds",
                "Since the oldest of them ended.",
                max(0, time_ns() - oldest) / 1e9 if oldest else 0,
            ),
            (
                "refusing",
                "1: requests are refused, since they can't be counted.",
                journal.is_refusing,
            ),
        ):
            yield GaugeMetricFamily(f"inferplane_usage_{name}", text, value=float(value))
        for name, text, value in (
            ("rows_sent", "Rows that metering has stored.", sent.sent),
            ("send_failures", "Attempts to send that failed.", sent.failures),
            ("rows_refused", "Rows that metering refused, kept in files.", sent.refused),
            ("rows_lost", "Rows that the disk lost.", sent.lost),
            ("outboxes_taken_over", "Outboxes of workers that died.", sent.taken_over),
        ):
            yield CounterMetricFamily(f"inferplane_usage_{name}", text, value=float(value))
