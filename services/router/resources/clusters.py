"""Clusters and their hosts: one per version, one more where it is mirrored to, and those of the control plane."""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.clusters.dns.v3.dns_cluster_pb2 import DnsCluster
from envoy.extensions.filters.http.header_mutation.v3.header_mutation_pb2 import HeaderMutation
from envoy.extensions.filters.http.upstream_codec.v3.upstream_codec_pb2 import UpstreamCodec
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from services.router.domain.snapshot import Kind, Reference, Resource
from services.router.domain.topology import RoutedVersion, Topology
from services.router.resources import assignments, edge, tls, wire
from services.rpc import address as addresses
from services.rpc.address import Address

_PROTOCOL_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_CONNECT_SECONDS = 1.0
_CHECK_SECONDS = 1.0
_LOOKUP_SECONDS = 1.0  # between lookups of a name
# A worker that hangs holds its calls until their deadline, unless its connection ends: then they are tried elsewhere.
# (Failed health checks and leaving the assignment only keep new calls away.) gRPC lets us ping each second.
_PING_SECONDS = 2.0
_FRAMING_BYTES = 64 * 1024
_LARGEST_WINDOW = (1 << 31) - 1  # RFC 9113, 6.9.1
_UNLIMITED = 1_000_000  # calls in flight to the control plane and for health checks of the edge
# Below this share of healthy hosts Envoy tries all of them. 1 %: only when none is healthy, where trying is better
# than refusing (a new host is not healthy yet); as long as one is, the others get nothing. Envoy's default is 50 %.
_PANIC_PERCENT = 1.0
_CACHED = 4096


def of_version(
    version: RoutedVersion,
    max_message_bytes: int,
    zones: Mapping[str, str],
    *,
    by_tls: bool = False,
) -> list[Resource]:
    """A version's clusters with their assignments; `by_tls`: hosts on TCP are reached so."""
    built = [_serving(version, max_message_bytes, by_tls=by_tls)]
    if version.mirrored:
        built.append(_mirrored(version, max_message_bytes, by_tls=by_tls))
    for cluster in tuple(built):
        built.append(assignments.of_all(cluster.name, version.addresses))
        if zones:
            built += assignments.by_zone(cluster.name, version.addresses, zones)
    return built


def of_any_worker(
    hosts: tuple[str, ...], max_message_bytes: int, *, by_tls: bool = False
) -> list[Resource]:
    """The cluster of all workers, for calls that every worker answers alike, with its assignment."""
    cluster = _discovered(edge.ANY_WORKER, max_message_bytes, stamps={})
    _limit(cluster, _UNLIMITED, budget=(100.0, 32))
    cluster.health_checks.add(**_health_check(""))
    return [_of_workers(cluster, by_tls=by_tls), assignments.of_all(edge.ANY_WORKER, hosts)]


def of_control_plane(settings: edge.Edge) -> list[Resource]:
    """The clusters that management calls go to."""
    return [
        _fixed(edge.REGISTRY, settings.registry_address, settings),
        _fixed(edge.DISCOVERY, settings.discovery_address, settings),
        _fixed(edge.ROUTER, settings.router_address, settings),
        _fixed(edge.METERING, settings.metering_address, settings),
    ]


@lru_cache(_CACHED)
def _serving(version: RoutedVersion, max_message_bytes: int, *, by_tls: bool) -> Resource:
    cluster = _discovered(
        edge.version_cluster(version.name),
        max_message_bytes,
        {edge.VERSION_HEADER: str(version.name)},
    )
    budget = (version.retry.budget_percent, version.retry.min_retry_concurrency)
    _limit(cluster, version.limits.max_requests, budget=budget)
    if (
        version.stateful
    ):  # by the route's hash; a worker that comes or goes moves few of the others' sequences
        cluster.lb_policy = Cluster.MAGLEV
    cluster.health_checks.add(**_health_check(str(version.name)))
    cluster.MergeFrom(Cluster(outlier_detection=_outlier_detection()))
    return _of_workers(cluster, by_tls=by_tls)


@lru_cache(_CACHED)
def _mirrored(version: RoutedVersion, max_message_bytes: int, *, by_tls: bool) -> Resource:
    """Nothing here may touch what serves: limits of its own, no retries; the serving cluster checks the hosts."""
    cluster = _discovered(
        edge.mirror_cluster(version.name),
        max_message_bytes,
        {edge.VERSION_HEADER: str(version.name), edge.SHADOW_HEADER: "1"},
    )
    _limit(cluster, version.limits.max_mirror_requests, budget=(0.0, 0))
    return _of_workers(cluster, by_tls=by_tls)


def _of_workers(cluster: Any, *, by_tls: bool) -> Resource:
    return _resource(cluster, tls.reach_workers(cluster) if by_tls else [])


def _resource(cluster: Any, secrets: Sequence[Reference] = ()) -> Resource:
    names_hosts = cluster.type == Cluster.EDS
    references = [*([Reference(Kind.ASSIGNMENT, cluster.name)] if names_hosts else []), *secrets]
    return Resource.of(Kind.CLUSTER, cluster.name, wire.serialized(cluster), references)


def _discovered(name: str, max_message_bytes: int, stamps: Mapping[str, str]) -> Any:
    """A cluster whose hosts come by EDS; `stamps` are headers that say what its calls mean."""
    return Cluster(
        name=name,
        type=Cluster.EDS,
        eds_cluster_config={"eds_config": {"ads": {}, "resource_api_version": "V3"}},
        connect_timeout=wire.seconds(_CONNECT_SECONDS),
        lb_policy=Cluster.LEAST_REQUEST,
        per_connection_buffer_limit_bytes=wire.number(max_message_bytes + _FRAMING_BYTES),
        typed_extension_protocol_options={
            _PROTOCOL_OPTIONS: wire.packed(_protocol(max_message_bytes, stamps))
        },
        common_lb_config={"healthy_panic_threshold": {"value": _PANIC_PERCENT}},
        # A host that leaves the assignment gets no new calls, however well its health checks still go.
        ignore_health_on_host_removal=True,
    )


def _fixed(name: str, text: str, settings: edge.Edge) -> Resource:
    peers = addresses.parse_peers(text)
    cluster = Cluster(
        name=name,
        connect_timeout=wire.seconds(_CONNECT_SECONDS),
        load_assignment={
            "cluster_name": name,
            "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": wire.socket_of(p)}} for p in peers]}
            ],
        },
        typed_extension_protocol_options={
            _PROTOCOL_OPTIONS: wire.packed(_protocol(settings.max_message_bytes, {}))
        },
    )
    if all(map(_is_literal, peers)):
        cluster.type = Cluster.STATIC
    else:
        cluster.cluster_type.MergeFrom(_looked_up())
    _limit(cluster, _UNLIMITED, budget=(100.0, 32))
    if addresses.are_several(text):
        cluster.MergeFrom(_of_several())
    by_tls = bool(settings.tls_dir) and all(peer.path is None for peer in peers)
    return _resource(cluster, tls.reach_services(cluster) if by_tls else [])


def _looked_up() -> Any:
    """Names are looked up each second, whatever their answers say of being kept: containers move."""
    dns = DnsCluster(
        dns_refresh_rate=wire.seconds(_LOOKUP_SECONDS),
        dns_failure_refresh_rate={
            "base_interval": wire.seconds(_LOOKUP_SECONDS / 2),
            "max_interval": wire.seconds(_LOOKUP_SECONDS),
        },
        dns_lookup_family="V4_PREFERRED",
    )
    return Cluster(cluster_type=wire.extension("envoy.cluster.dns", dns)).cluster_type


def _of_several() -> Any:
    """Peers that serve the same: those that say they do get the calls; a standby says that it does not."""
    return Cluster(
        health_checks=[_health_check("", unhealthy_threshold=1)],
        common_lb_config={"healthy_panic_threshold": {"value": _PANIC_PERCENT}},
        ignore_health_on_host_removal=True,
    )


def _is_literal(peer: Address) -> bool:
    if peer.path is not None:
        return True
    try:
        ipaddress.ip_address(peer.host)
    except ValueError:
        return False
    return True


def _protocol(max_message_bytes: int, stamps: Mapping[str, str]) -> Any:
    window = min(max_message_bytes + _FRAMING_BYTES, _LARGEST_WINDOW)
    options = HttpProtocolOptions(
        explicit_http_config={
            "http2_protocol_options": {
                "initial_stream_window_size": wire.number(window),
                "initial_connection_window_size": wire.number(min(2 * window, _LARGEST_WINDOW)),
                "connection_keepalive": {
                    "interval": wire.seconds(_PING_SECONDS),
                    "timeout": wire.seconds(_PING_SECONDS),
                },
            }
        }
    )
    if stamps:
        mutations = [
            {
                "append": {
                    "header": {"key": header, "value": value},
                    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                }
            }
            for header, value in stamps.items()
        ]
        headers = HeaderMutation(mutations={"request_mutations": mutations})
        options.http_filters.add(**wire.extension("envoy.filters.http.header_mutation", headers))
        options.http_filters.add(
            **wire.extension("envoy.filters.http.upstream_codec", UpstreamCodec())
        )
    return options


def _limit(cluster: Any, max_requests: int, budget: tuple[float, int]) -> None:
    """Bound calls in flight. Pending ones are bounded alike: on a cold HTTP/2 connection all are pending first."""
    percent, concurrency = budget
    cluster.circuit_breakers.thresholds.add(
        max_connections=wire.number(_UNLIMITED),
        max_pending_requests=wire.number(max_requests),
        max_requests=wire.number(max_requests),
        retry_budget={
            "budget_percent": {"value": percent},
            "min_retry_concurrency": wire.number(concurrency),
        },
        track_remaining=True,
    )


def _health_check(service: str, unhealthy_threshold: int = 2) -> dict[str, Any]:
    return {
        "timeout": wire.seconds(_CHECK_SECONDS),
        "interval": wire.seconds(_CHECK_SECONDS),
        "no_traffic_interval": wire.seconds(_CHECK_SECONDS),
        "unhealthy_threshold": wire.number(unhealthy_threshold),
        "healthy_threshold": wire.number(1),
        # The authority is the cluster's name unless given; one with slashes is none (RFC 3986, 3.2), and HTTP/2
        # servers that look end such calls. Then no host is ever healthy, which Envoy takes for all being alike.
        "grpc_health_check": {"service_name": service, "authority": "worker"},
    }


def _outlier_detection() -> dict[str, Any]:
    """Five calls in a row unanswered, or answered UNAVAILABLE, put a host aside, but never more than half of them.

    Gateway failures are counted, not all 5xx: a caller whose inputs break a model (INTERNAL) must not be able to take
    workers from others. DEADLINE_EXCEEDED counts too; only an unbroken row of them does harm.
    """
    return {
        "consecutive_gateway_failure": wire.number(5),
        "enforcing_consecutive_gateway_failure": wire.number(100),
        "enforcing_consecutive_5xx": wire.number(0),
        "enforcing_success_rate": wire.number(0),
        "interval": wire.seconds(1),
        "base_ejection_time": wire.seconds(5),
        "max_ejection_percent": wire.number(50),
    }


def resources(topology: Topology, settings: edge.Edge) -> list[Resource]:
    """All clusters and assignments of a topology."""
    limit, by_tls = settings.max_message_bytes, bool(settings.tls_dir)
    zones = dict(topology.zones)
    built = of_control_plane(settings)
    built += of_any_worker(topology.addresses, limit, by_tls=by_tls)
    for version in topology.versions:
        built += of_version(version, limit, zones, by_tls=by_tls)
    return built
