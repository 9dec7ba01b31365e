"""The resources of a topology: what Envoy is told, and that every router tells the same."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from services.router.domain.snapshot import Kind, Snapshot
from services.router.domain.topology import (
    CircuitLimits,
    Endpoint,
    Mirror,
    RetryPolicy,
    Target,
    Topology,
    Worker,
    route,
)
from services.router.resources import methods
from services.router.resources.build import ResourceBuilder
from services.router.resources.edge import Edge
from services.rpc.names import EndpointName, VersionName

V1, V2 = VersionName("digits", "1"), VersionName("digits", "2")
EDGE = Edge(
    address="127.0.0.1:8080",
    registry_address="unix:/run/x/registry.sock",
    discovery_address="10.0.0.1:8081",
    router_address="router.example:8082",
    max_message_bytes=1 << 26,
)


def topology(**fields: Any) -> Topology:
    fields.setdefault("targets", (Target(V1, 90), Target(V2, 10)))
    endpoint = Endpoint(name=EndpointName("digits"), **fields)
    workers = [
        Worker(name="workers/a", address="unix:/run/x/a.sock", ready=frozenset([V1, V2])),
        Worker(name="workers/b", address="10.0.0.2:9000", ready=frozenset([V1])),
    ]
    return route([endpoint], {}, workers)


def build(**fields: Any) -> Snapshot:
    return Snapshot.build(ResourceBuilder(EDGE).build(topology(**fields)))


def routes_of(snapshot: Snapshot, *, streams: bool = False) -> dict[str, Any]:
    """Key → route, of the endpoints' map."""
    message = RouteConfiguration.FromString(snapshot.of_kind(Kind.ROUTES)["edge"].body)
    whole = message.virtual_hosts[0].matcher
    by_state = whole.on_no_match.matcher.on_no_match.matcher  # after OpenAI's paths
    if streams:
        entry = whole.matcher_tree.exact_match_map.map[methods.path(methods.STREAM)]
        by_state = entry.matcher
    entries = by_state.matcher_tree.exact_match_map.map
    found = {}
    for key, entry in entries.items():
        found[key] = Route()
        entry.action.typed_config.Unpack(found[key])
    return found


def texts_of(snapshot: Snapshot, path: str) -> dict[str, Any]:
    """Key → route, of what is asked for text on a path."""
    message = RouteConfiguration.FromString(snapshot.of_kind(Kind.ROUTES)["edge"].body)
    entry = message.virtual_hosts[0].matcher.matcher_tree.exact_match_map.map[path]
    found = {}
    for key, action in entry.matcher.matcher_tree.exact_match_map.map.items():
        found[key] = Route()
        action.action.typed_config.Unpack(found[key])
    return found


def cluster_of(snapshot: Snapshot, name: str) -> Any:
    return Cluster.FromString(snapshot.of_kind(Kind.CLUSTER)[name].body)


def test_every_endpoint_and_version_has_its_key() -> None:
    """The map holds the endpoint alone and each version pinned."""
    assert set(routes_of(build())) == {"digits@", "digits@1", "digits@2"}


def test_split_is_in_declared_order() -> None:
    """Weights are millionths, in the order of the targets, which keeps sticky callers in place."""
    clusters = routes_of(build())["digits@"].route.weighted_clusters.clusters
    assert [(c.name, c.weight.value) for c in clusters] == [
        ("models/digits/versions/1", 900_000),
        ("models/digits/versions/2", 100_000),
    ]


def test_pin_goes_to_its_version_and_is_not_mirrored() -> None:
    """A pinned call reaches exactly the version that it names."""
    routes = routes_of(build(mirror=Mirror(V2, 5)))
    assert routes["digits@2"].route.cluster == "models/digits/versions/2"
    assert not routes["digits@2"].route.request_mirror_policies
    (mirror,) = routes["digits@"].route.request_mirror_policies
    assert mirror.cluster == "models/digits/versions/2#mirror"
    assert mirror.runtime_fraction.default_value.numerator == 50_000


def test_mirror_has_a_cluster_of_its_own_with_its_own_limit() -> None:
    """What mirrors is bounded apart from what serves, and not retried or checked twice."""
    limits = CircuitLimits(max_requests=7, max_mirror_requests=3)
    snapshot = build(mirror=Mirror(V2, 5), limits=limits)
    serving = cluster_of(snapshot, "models/digits/versions/2")
    mirror = cluster_of(snapshot, "models/digits/versions/2#mirror")
    assert serving.circuit_breakers.thresholds[0].max_requests.value == 7
    assert serving.circuit_breakers.thresholds[0].max_pending_requests.value == 7
    assert mirror.circuit_breakers.thresholds[0].max_requests.value == 3
    assert not mirror.health_checks


def test_health_is_asked_by_version_of_an_authority_that_is_one() -> None:
    """A cluster's name has slashes, and servers that look at authorities refuse it."""
    (check,) = cluster_of(build(), "models/digits/versions/1").health_checks
    assert check.grpc_health_check.service_name == "models/digits/versions/1"
    assert check.grpc_health_check.authority == "worker"


def test_hosts_by_socket_and_by_address() -> None:
    """A worker's address becomes a pipe or a socket address."""
    snapshot = build()
    body = snapshot.of_kind(Kind.ASSIGNMENT)["models/digits/versions/1"].body
    (group,) = ClusterLoadAssignment.FromString(body).endpoints
    addresses = [host.endpoint.address for host in group.lb_endpoints]
    assert addresses[0].socket_address.address == "10.0.0.2"
    assert addresses[1].pipe.path == "/run/x/a.sock"


@pytest.mark.parametrize(
    ("name", "is_name"),
    [
        pytest.param("management/registry", False, id="socket"),
        pytest.param("management/discovery", False, id="ip"),
        pytest.param("management/router", True, id="host-name"),
    ],
)
def test_control_plane_is_reached_by_what_its_address_is(name: str, is_name: bool) -> None:
    """Sockets and IP addresses are taken as they are; names are resolved, and their hosts asked for their health."""
    cluster = cluster_of(build(), name)
    assert cluster.cluster_type.name == ("envoy.cluster.dns" if is_name else "")
    assert len(cluster.health_checks) == is_name


def test_calls_that_nobody_has_begun_go_to_another_peer() -> None:
    """Where a service is several processes a call that one did not take is tried at another; else nothing is."""
    several = replace(EDGE, metering_address="10.0.0.3:84,10.0.0.4:84")
    snapshot = Snapshot.build(ResourceBuilder(several).build(topology()))
    cluster = cluster_of(snapshot, "management/metering")
    (group,) = cluster.load_assignment.endpoints
    hosts = [host.endpoint.address.socket_address.address for host in group.lb_endpoints]
    assert (cluster.type, hosts) == (Cluster.STATIC, ["10.0.0.3", "10.0.0.4"])
    assert cluster.health_checks[0].unhealthy_threshold.value == 1
    tried = b"connect-failure,refused-stream,retriable-headers"
    assert tried in snapshot.of_kind(Kind.ROUTES)["edge"].body
    alone = ResourceBuilder(replace(EDGE, router_address="10.0.0.5:82")).build(topology())
    assert not any(tried in resource.body for resource in alone)


def test_empty_assignment_takes_away() -> None:
    """A version without READY workers has an assignment that must wait for the routes."""
    endpoint = Endpoint(name=EndpointName("digits"), targets=(Target(V1, 1),))
    snapshot = Snapshot.build(ResourceBuilder(EDGE).build(route([endpoint], {}, [])))
    assert snapshot.of_kind(Kind.ASSIGNMENT)["models/digits/versions/1"].breaks


def test_no_retries_means_no_policy() -> None:
    """Zero retries leave the route without a retry policy."""
    plain = routes_of(build(retry=RetryPolicy(num_retries=0)))["digits@"].route
    assert not plain.HasField("retry_policy")
    assert routes_of(build())["digits@"].route.retry_policy.num_retries.value == 2


def test_streams_last_and_are_not_mirrored() -> None:
    """Each key has a route for streams too: the same split and retries, no timeout but that of an hour's silence."""
    snapshot = build(mirror=Mirror(V2, 5), timeout=1.0)
    plain, streams = routes_of(snapshot), routes_of(snapshot, streams=True)
    assert plain.keys() == streams.keys()
    action = streams["digits@"].route
    assert action.weighted_clusters == plain["digits@"].route.weighted_clusters
    assert action.retry_policy == plain["digits@"].route.retry_policy
    assert not action.request_mirror_policies
    assert action.timeout.ToNanoseconds() == 0
    assert action.max_stream_duration.max_stream_duration.ToNanoseconds() == 0
    assert action.idle_timeout.seconds == 3600


def test_text_lasts_as_long_as_it_is_heard_of() -> None:
    """Not mirrored, no timeout but that of silence, found by the endpoint and by what OpenAI's clients call it."""
    endpoint = Endpoint(
        name=EndpointName("digits"),
        targets=(Target(V1, 90), Target(V2, 10)),
        mirror=Mirror(V2, 5),
        timeout=7.0,
    )
    snapshot = Snapshot.build(
        ResourceBuilder(EDGE).build(route([endpoint], {}, [], frozenset(), {V1}))
    )
    for path in (methods.path(methods.TEXT_STREAM), *methods.OF_OPENAI):
        routes = texts_of(snapshot, path)
        assert set(routes) == {"@", "digits@", "digits@1", "digits@2", "digits@1@", "digits@2@"}
        action = routes["digits@"].route
        assert not action.request_mirror_policies
        assert action.timeout.ToNanoseconds() == 0
        assert action.max_stream_duration.max_stream_duration.ToNanoseconds() == 0
        assert action.idle_timeout.seconds == 7
        assert [c.weight.value for c in action.weighted_clusters.clusters] == [900_000, 100_000]
        assert action.retry_policy.num_retries.value == 2
        assert routes["digits@2@"].route.cluster == "models/digits/versions/2"


def test_no_text_of_a_tensor_model() -> None:
    """Whoever asks is told, and no worker."""
    routes = texts_of(build(), methods.path(methods.TEXT_STREAM))
    assert set(routes) == {"@", "digits@"}
    assert routes["digits@"].direct_response.status == 400
    (header,) = routes["digits@"].response_headers_to_add
    assert (header.header.key, header.header.value) == ("grpc-status", "9")


def test_a_version_with_state_gets_each_sequence_on_one_worker() -> None:
    """Maglev by the header, one version of the split, and no retry of what a worker may have begun."""
    endpoint = Endpoint(
        name=EndpointName("digits"), targets=(Target(V1, 1), Target(V2, 1)), sticky_header="x-user"
    )
    snapshot = Snapshot.build(ResourceBuilder(EDGE).build(route([endpoint], {}, [], {V2})))
    action = routes_of(snapshot)["digits@"].route
    assert action.weighted_clusters.use_hash_policy.value
    assert [(p.header.header_name, p.terminal) for p in action.hash_policy] == [
        ("x-sequence-id", True),
        ("x-user", False),
    ]
    assert "reset" not in action.retry_policy.retry_on
    assert cluster_of(snapshot, str(V1)).lb_policy == Cluster.LEAST_REQUEST
    assert cluster_of(snapshot, str(V2)).lb_policy == Cluster.MAGLEV
    pinned = routes_of(snapshot)["digits@2"].route
    assert [p.header.header_name for p in pinned.hash_policy] == ["x-sequence-id"]


def test_traffic_never_changes_the_listener() -> None:
    """Endpoints, workers, splits: the listener's version stays."""
    empty = Snapshot.build(ResourceBuilder(EDGE).build(Topology()))
    busy = build(sticky_header="x-user", mirror=Mirror(V2, 5))
    listeners = [s.of_kind(Kind.LISTENER)["edge"].version for s in (empty, busy)]
    assert listeners[0] == listeners[1]


def test_change_of_weights_changes_routes_alone() -> None:
    """A new split touches the route configuration and nothing else."""
    one, other = build(), build(targets=(Target(V1, 50), Target(V2, 50)))
    changed = [
        kind
        for kind in Kind
        if {r.version for r in one.of_kind(kind).values()}
        != {r.version for r in other.of_kind(kind).values()}
    ]
    assert changed == [Kind.ROUTES]


_PRINT_VERSION = """
from tests.unit.router.resources.test_build import build, Mirror, V2
print(build(mirror=Mirror(V2, 5)).version)
"""


def test_two_routers_give_identical_versions() -> None:
    """Processes with different hash seeds build the same bytes, so Envoys may move between routers."""
    versions = {
        subprocess.run(
            [sys.executable, "-c", _PRINT_VERSION],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert versions == {f"{build(mirror=Mirror(V2, 5)).version}\n"}


def test_zones_change_hosts_and_retries_alone() -> None:
    """With zones, an edge of one gets its hosts in tiers, and retries leave a tier; others get the bytes they had."""
    workers = [
        Worker(name=f"workers/{n}", address=f"10.0.0.{n}:90", ready=frozenset([V1]), zone=zone)
        for n, zone in enumerate(["a", "a", "b", "b"], 1)
    ]
    endpoint = Endpoint(name=EndpointName("digits"), targets=(Target(V1, 1),))
    plain = Snapshot.build(
        ResourceBuilder(EDGE).build(route([endpoint], {}, [replace(w, zone="") for w in workers]))
    )
    zoned = Snapshot.build(ResourceBuilder(EDGE).build(route([endpoint], {}, workers)))
    for kind in set(Kind) - {Kind.ROUTES}:
        assert zoned.of_kind(kind) == plain.of_kind(kind)
    tier = b"envoy.retry_priorities.previous_priorities"
    assert tier in zoned.of_kind(Kind.ROUTES)["edge"].body
    assert tier not in plain.of_kind(Kind.ROUTES)["edge"].body
    assert zoned.seen_from("") is zoned.seen_from("c") is zoned
    body = zoned.seen_from("b").of_kind(Kind.ASSIGNMENT)[str(V1)].body
    message = ClusterLoadAssignment.FromString(body)
    found = [
        (group.priority, group.locality.zone, len(group.lb_endpoints))
        for group in message.endpoints
    ]
    assert found == [(0, "b", 2), (1, "a", 2)]
    assert message.policy.overprovisioning_factor.value == 100
