"""Statistics as Prometheus reads them, in both of its formats."""

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
from prometheus_client.parser import text_string_to_metric_families as lenient

from services.rpc.names import VersionName
from services.worker.adapters.metrics import PrometheusMeter
from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.counters import Outcome
from services.worker.domain.statistics import VersionStatistics

NAME = VersionName("digits", "2")


def counted() -> VersionStatistics:
    statistics = VersionStatistics()
    statistics.called(Outcome.SUCCEEDED, 0.02)
    statistics.called(Outcome.REJECTED, 0.001)
    batch = ComputedBatch(
        rows=4, waits=(0.5, 0.25), input_ns=1_000, infer_ns=2_000_000, output_ns=3_000
    )
    statistics.computed(batch, 1)
    statistics.cache_hit.add(5_000)
    return statistics


def samples(text: str, parse: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def test_both_formats_tell_the_same() -> None:
    """What Prometheus asks for first is strict: names, types and buckets must fit each other."""
    registry = CollectorRegistry()
    PrometheusMeter(registry).show(NAME, counted())
    plain = samples(generate_latest(registry).decode(), lenient)
    told: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call] # no annotations there
    assert samples(told.decode(), strict) == plain
    ours, theirs = (("version", str(NAME)),), (("model", "digits"), ("version", "2"))
    assert plain["inferplane_batch_rows_bucket", (("le", "2.0"), *ours)] == 0
    assert plain["inferplane_batch_rows_bucket", (("le", "4.0"), *ours)] == 1
    assert plain["inferplane_queue_seconds_sum", ours] == 0.75
    assert plain["inferplane_call_seconds_count", ours] == 2
    assert plain["nv_inference_request_success", theirs] == 1
    reason = (theirs[0], ("reason", "REJECTED"), theirs[1])
    assert plain["nv_inference_request_failure", reason] == 1
    assert plain["nv_inference_count", theirs] == 4
    assert plain["nv_inference_exec_count", theirs] == 1
    assert plain["nv_inference_request_duration_us", theirs] == 20_000
    assert plain["nv_inference_queue_duration_us", theirs] == 750_000
    assert plain["nv_inference_compute_infer_duration_us", theirs] == 4_000
    assert plain["nv_cache_hit_duration_per_model", theirs] == 5


def test_a_version_that_is_gone_has_no_labels() -> None:
    """Others stay; hiding twice is harmless."""
    registry = CollectorRegistry()
    meter = PrometheusMeter(registry)
    other = VersionName("digits", "3")
    for name in (NAME, other):
        meter.show(name, counted())
    for _ in range(2):
        meter.hide(NAME)
    text = generate_latest(registry).decode()
    assert str(NAME) not in text
    assert 'model="digits",version="3"' in text


def test_gauges_are_asked_when_scraped() -> None:
    """What waits is what waits then."""
    registry, statistics, waiting = CollectorRegistry(), VersionStatistics(), [1]
    PrometheusMeter(registry).show(NAME, statistics)
    statistics.queued_rows = lambda: waiting[0]
    statistics.sequences = lambda: 10 * waiting[0]
    statistics.sequence_bytes = lambda: 100 * waiting[0]
    for waiting[0] in (3, 5):
        for metric, factor in (("queued_rows", 1), ("sequences", 10), ("sequence_bytes", 100)):
            value = registry.get_sample_value(f"inferplane_{metric}", {"version": str(NAME)})
            assert value == factor * waiting[0]
