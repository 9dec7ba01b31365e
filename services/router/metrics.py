"""The router's metrics."""

from prometheus_client import Counter, Gauge

ACKS = Counter("inferplane_router_acks", "Updates that an Envoy took", ["kind"])
NACKS = Counter("inferplane_router_nacks", "Updates that an Envoy refused", ["kind"])
KEEPS_CONCURRENCY = Gauge(
    "inferplane_router_keeps_concurrency", "1 if the edge keeps limits of requests in flight"
)
CONNECTED = Gauge("inferplane_router_envoys", "Envoys that are connected")
HEARS = Gauge(
    "inferplane_router_hears", "1 while registry, discovery or metering is heard", ["peer"]
)
