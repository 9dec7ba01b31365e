"""All resources of a topology and a policy."""

from services.router.domain.policy import Policy
from services.router.domain.snapshot import Resource
from services.router.domain.topology import Topology
from services.router.resources import claims, clusters, edge, listener, policy_filters, routes, tls


class ResourceBuilder:
    """Turns topology and policy into what Envoy gets; equal ones give equal bytes."""

    def __init__(self, settings: edge.Edge) -> None:
        self._settings = settings
        self._listener = listener.resource(settings)
        self._filters = policy_filters.PolicyFilters(has_module=settings.has_module)

    def build(self, topology: Topology, policy: Policy | None = None) -> list[Resource]:
        """Listener, its filters that change, routes, clusters and assignments."""
        settings = self._settings
        filters = []
        if settings.asks_for_keys and policy is not None:
            filters = self._filters.resources(policy)
        return [
            *tls.secrets(self._settings),
            self._listener,
            *filters,
            routes.resource(topology.endpoints, settings, claims.of(policy)),
            *clusters.resources(topology, settings),
        ]
