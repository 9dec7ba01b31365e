"""Identity's state as Prometheus metrics, read when they are scraped."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from services.metering.domain.api_key import KeyState


@dataclass(frozen=True, slots=True)
class Gauges:
    """Where the values are. The scrape runs in another thread: they are plain numbers."""

    keys: Callable[[], Mapping[KeyState, int]]
    facts: Callable[[], int]
    watchers: Callable[[], int]
    issuer_ages: Callable[[], Mapping[str, float]]


class IdentityMetrics(Collector):
    """Labels come from the states there are and the issuers in the settings, so their number is bounded."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[GaugeMetricFamily]:
        keys = GaugeMetricFamily(
            "inferplane_metering_keys", "API keys by state, counted each minute.", labels=["state"]
        )
        for state, count in self._gauges.keys().items():
            keys.add_metric([state.value], count)
        yield keys
        yield GaugeMetricFamily(
            "inferplane_metering_policy_facts",
            "Facts that the edge is told.",
            value=self._gauges.facts(),
        )
        yield GaugeMetricFamily(
            "inferplane_metering_policy_watchers",
            "Open watches of the policy.",
            value=self._gauges.watchers(),
        )
        ages = GaugeMetricFamily(
            "inferplane_metering_issuer_age_seconds",
            "Since the issuer's last good answer.",
            labels=["issuer"],
        )
        for issuer, age in self._gauges.issuer_ages().items():
            ages.add_metric([issuer], age)
        yield ages
