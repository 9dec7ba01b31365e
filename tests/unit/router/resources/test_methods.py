"""Which process a method of the inference services goes to, by its path."""

from typing import Any

import pytest
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from services.router.resources import edge, methods, routes

EDGE = edge.Edge(
    address="127.0.0.1:8080",
    registry_address="unix:/run/x/registry.sock",
    discovery_address="unix:/run/x/registry.sock",
    router_address="unix:/run/x/router.sock",
    max_message_bytes=1 << 20,
)


def by_path() -> dict[str, Any]:
    """Path → route, where no endpoint is there."""
    message = RouteConfiguration.FromString(routes.resource([], EDGE, ()).body)
    matcher: Any = message.virtual_hosts[0].matcher
    found = {}
    while matcher.ByteSize():
        for path, entry in matcher.matcher_tree.exact_match_map.map.items():
            if entry.HasField("action"):
                found[path] = Route()
                entry.action.typed_config.Unpack(found[path])
        matcher = matcher.on_no_match.matcher
    return found


@pytest.mark.parametrize("service", [methods.OIP, methods.REST])
def test_the_repository_is_the_registry_s(service: str) -> None:
    """Triton's repository methods go to the registry without a timeout, and are not tried twice."""
    found = by_path()
    for method in ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"):
        route = found[f"/{service}/{method}"].route
        assert route.cluster == edge.REGISTRY
        assert route.timeout.ToNanoseconds() == 0
        assert not route.HasField("retry_policy")
    assert found[f"/{service}/ServerReady"].route.cluster == edge.ANY_WORKER
