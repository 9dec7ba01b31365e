"""Prometheus metrics of texts that are looked at after their end."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from services.worker.drivers.text_desk import DeskEvent, TextDesk


class TextMetrics(Collector):
    """Scraped in a thread of its own."""

    def __init__(self, desk: TextDesk, registry: CollectorRegistry) -> None:
        """Join the registry; once per registry."""
        self._desk = desk
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """As of now; every event from the start, so that rates are right from the first."""
        events = CounterMetricFamily(
            "inferplane_texts", "Ended texts, by what became of them.", labels=("event",)
        )
        for event in DeskEvent:
            events.add_metric((event.value,), self._desk.events[event])
        yield events
        waiting = self._desk.waiting()
        yield GaugeMetricFamily("inferplane_waiting_texts", "Ended texts to look at.", waiting)
