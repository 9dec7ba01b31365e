"""Which process a method of the inference services goes to, by its path."""

from typing import Any

import pytest
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from services.router.resources import edge, methods, routes


def by_path() -> dict[str, Any]:
    """Path → route, where no endpoint is there."""
    resource = routes.resource([], 1 << 20)
    message = RouteConfiguration.FromString(resource.body)
    found = {}
    for path, entry in _exact(message.virtual_hosts[0].matcher).items():
        found[path] = Route()
        entry.action.typed_config.Unpack(found[path])
    return found


def _exact(matcher: Any) -> Any:
    """The map of exact paths, behind what streams need."""
    entries = matcher.matcher_tree.exact_match_map.map
    if any(path.startswith("/") for path in entries):
        return entries
    return _exact(matcher.on_no_match.matcher)


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
