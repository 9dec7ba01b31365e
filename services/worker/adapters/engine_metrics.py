"""Engines of language models, and Prometheus metrics of them, made from what they count whenever they are scraped.

Two families of names: vLLM's, which gateways and dashboards know (`vllm:num_requests_waiting`, `…_running` and
`kv_cache_usage_perc` are what the Gateway API's picker asks for), and ours for what those have no name for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isinf

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from services.rpc.names import VersionName
from services.worker.domain.histogram import Histogram
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.engine_statistics import EngineStatistics
from services.worker.llm.domain.step import RunnerCapacity
from services.worker.llm.drivers.engine import Engine
from services.worker.llm.ports.engine import EngineLoad
from services.worker.llm.ports.language_model import LanguageModel

_LABELS = ("model_name", "version")


@dataclass(slots=True)
class _Shown:
    """One version's engine, or those that it had after each other."""

    engine: Engine
    capacity: RunnerCapacity
    statistics: EngineStatistics = field(default_factory=EngineStatistics)


_All = Mapping[VersionName, _Shown]


class MeteredEngines(Collector):
    """`Engines` in a Prometheus registry; scraped in a thread of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Join the registry; once per registry."""
        self._shown: dict[VersionName, _Shown] = {}
        registry.register(self)

    def engine(
        self, version: VersionName, model: LanguageModel, settings: EngineSettings
    ) -> Engine:
        """An engine for a model; its metrics go on from those of the version's engine before."""
        before = self._shown.get(version)
        statistics = before.statistics if before is not None else EngineStatistics()
        engine = Engine(model, settings, statistics)
        self._shown[version] = _Shown(engine, model.runner.capacity, statistics)
        return engine

    def hide(self, version: VersionName) -> None:
        """The version is gone: its metrics go too."""
        self._shown.pop(version, None)

    def collect(self) -> Iterator[Metric]:
        """All metrics as of now."""
        shown = dict(self._shown)
        yield from _loads(shown)
        yield from _counters(shown)
        yield from _ends(shown)
        yield from _histograms(shown)
        config = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Sizes of the cache of keys and values.",
            labels=(*_LABELS, "block_size", "num_gpu_blocks"),
        )
        for name, of in shown.items():
            sizes = (str(of.capacity.block_size), str(of.capacity.blocks))
            config.add_metric((*_labels(name), *sizes), 1)
        yield config


_LOADS: Mapping[str, tuple[str, Callable[[EngineLoad], float]]] = {
    "vllm:num_requests_running": ("Requests that are computed.", lambda load: load.running),
    "vllm:num_requests_waiting": ("Requests that wait.", lambda load: load.waiting),
    "vllm:kv_cache_usage_perc": ("Blocks that requests hold: 0 to 1.", lambda load: load.kv_usage),
    "inferplane_engine_kv_waste": (
        "Places in the blocks that requests hold without a token: 0 to 1.",
        lambda load: load.waste,
    ),
    "inferplane_engine_cached_blocks": (
        "Blocks that are kept for later requests.",
        lambda load: load.cached_blocks,
    ),
}
_COUNTERS: Mapping[str, tuple[str, Callable[[EngineStatistics], float]]] = {
    "vllm:num_preemptions": ("Texts that gave up their blocks.", lambda of: of.preemptions),
    "vllm:prompt_tokens": ("Tokens of prompts, computed.", lambda of: of.prompt_tokens),
    "vllm:generation_tokens": ("Tokens chosen.", lambda of: of.generated_tokens),
    "vllm:prefix_cache_queries": ("Tokens looked up in the cache.", lambda of: of.prefix_queries),
    "vllm:prefix_cache_hits": ("Of them, found.", lambda of: of.prefix_hits),
    "inferplane_engine_steps": ("Steps.", lambda of: of.steps),
    "inferplane_engine_failed_steps": ("Steps that the runner failed.", lambda of: of.failed_steps),
    "inferplane_engine_runner_seconds": (
        "Time of steps in the runner.",
        lambda of: of.runner_seconds,
    ),
    "inferplane_engine_own_seconds": (
        "Time of scheduling, sampling and text between steps.",
        lambda of: of.own_seconds,
    ),
    "inferplane_engine_sampling_seconds": (
        "Of the time between steps, that of choosing tokens.",
        lambda of: of.sampling_seconds,
    ),
    "inferplane_engine_idle_slot_seconds": (
        "Time of empty places in a step while requests waited.",
        lambda of: of.idle_slot_seconds,
    ),
}
_HISTOGRAMS: Mapping[str, tuple[str, Callable[[EngineStatistics], Histogram]]] = {
    "vllm:time_to_first_token_seconds": (
        "From arrival to the first token.",
        lambda of: of.first_token_seconds,
    ),
    "vllm:inter_token_latency_seconds": (
        "Between two tokens of a text.",
        lambda of: of.next_token_seconds,
    ),
    "vllm:request_time_per_output_token_seconds": (
        "Mean between tokens after the first, of a request.",
        lambda of: of.per_token_seconds,
    ),
    "vllm:e2e_request_latency_seconds": (
        "From arrival to the end.",
        lambda of: of.request_seconds,
    ),
    "vllm:request_queue_time_seconds": (
        "From arrival to the first step.",
        lambda of: of.queue_seconds,
    ),
    "vllm:request_prompt_tokens": (
        "Tokens of a request's prompt.",
        lambda of: of.request_prompt_tokens,
    ),
    "vllm:request_generation_tokens": (
        "Tokens of a request's answers.",
        lambda of: of.request_generated_tokens,
    ),
    "vllm:iteration_tokens_total": ("Tokens of a step.", lambda of: of.step_tokens),
    "inferplane_engine_batch": ("Texts of a step.", lambda of: of.batch),
}


def _loads(shown: _All) -> Iterator[Metric]:
    loads = {name: of.engine.load() for name, of in shown.items()}
    for metric, (text, value) in _LOADS.items():
        gauge = GaugeMetricFamily(metric, text, labels=_LABELS)
        for name, load in loads.items():
            gauge.add_metric(_labels(name), value(load))
        yield gauge


def _counters(shown: _All) -> Iterator[Metric]:
    for metric, (text, value) in _COUNTERS.items():
        counter = CounterMetricFamily(metric, text, labels=_LABELS)
        for name, of in shown.items():
            counter.add_metric(_labels(name), value(of.statistics))
        yield counter


def _ends(shown: _All) -> Iterator[Metric]:
    finished = CounterMetricFamily(
        "vllm:request_success",
        "Texts that ended well, by why they ended.",
        labels=(*_LABELS, "finished_reason"),
    )
    failed = CounterMetricFamily(
        "inferplane_engine_failed_requests",
        "Requests that ended with an error, by its kind.",
        labels=(*_LABELS, "kind"),
    )
    for name, of in shown.items():
        _add_all(finished, name, of.statistics.finished.items())
        _add_all(failed, name, of.statistics.failed.items())
    yield from (finished, failed)


def _add_all(
    counter: CounterMetricFamily, name: VersionName, counts: Iterable[tuple[str, int]]
) -> None:
    for label, count in list(counts):
        counter.add_metric((*_labels(name), label), count)


def _histograms(shown: _All) -> Iterator[Metric]:
    for metric, (text, value) in _HISTOGRAMS.items():
        family = HistogramMetricFamily(metric, text, labels=_LABELS)
        for name, of in shown.items():
            histogram = value(of.statistics)
            buckets = [
                ("+Inf" if isinf(bound) else str(bound), count)
                for bound, count in histogram.cumulative()
            ]
            family.add_metric(_labels(name), buckets, histogram.total)
        yield family


def _labels(name: VersionName) -> tuple[str, str]:
    return name.model, name.version
