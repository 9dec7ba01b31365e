"""The registry's state as Prometheus metrics, read when they are scraped."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class StateMetrics(Collector):
    """Gauges whose values are asked for at each scrape. The scrape runs in another thread: values are plain numbers."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], int]]]) -> None:
        """Take gauges by name: what it says, and where the value is."""
        self._gauges = gauges

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for name, (text, value) in self._gauges.items():
            yield GaugeMetricFamily(f"inferplane_registry_{name}", text, value=value())
