"""How busy an engine is, told with each answer (ORCA), for balancing that looks at more than open calls."""

from services.worker.drivers.served_text import ServedText

_KEY = "endpoint-load-metrics"


def trailers(served: ServedText) -> tuple[tuple[str, str], ...]:
    """Metadata in ORCA's text form (https://github.com/envoyproxy/envoy/blob/main/docs/root/intro/arch_overview/upstream/load_balancing/orca.rst)."""
    load = served.engine.load()
    metrics = (
        f"named_metrics.kv_cache_usage={load.kv_usage:.4f},"
        f"named_metrics.waiting_requests={load.waiting},"
        f"named_metrics.running_requests={load.running}"
    )
    return ((_KEY, f"TEXT {metrics}"),)
