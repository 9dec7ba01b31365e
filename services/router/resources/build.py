"""All resources of a topology and a policy."""

from collections.abc import Sequence

from services.router.domain.policy import Policy
from services.router.domain.snapshot import Resource
from services.router.domain.topology import Topology
from services.router.resources import claims, clusters, edge, listener, policy_filters, routes, tls


class ResourceBuilder:
    """Turns topology and policy into what Envoy gets; equal ones give equal bytes.

    What follows from the topology is kept until it changes: with hundreds of endpoints a revocation would wait for it.
    """

    def __init__(self, settings: edge.Edge) -> None:
        self._settings = settings
        self._listener = listener.resource(settings)
        self._filters = policy_filters.PolicyFilters(has_module=settings.has_module)
        self._routed_by: tuple[Topology, tuple[claims.Claim, ...]] | None = None
        self._routed: Sequence[Resource] = ()

    def build(self, topology: Topology, policy: Policy | None = None) -> list[Resource]:
        """Listener, its filters that change, routes, clusters and assignments."""
        filters = []
        if self._settings.asks_for_keys and policy is not None:
            filters = self._filters.resources(policy)
        return [
            *tls.secrets(self._settings),
            self._listener,
            *filters,
            *self._of_topology(topology, claims.of(policy)),
        ]

    def _of_topology(
        self, topology: Topology, places: tuple[claims.Claim, ...]
    ) -> Sequence[Resource]:
        if self._routed_by != (topology, places):
            self._routed_by = topology, places
            self._routed = (
                routes.resource(topology.endpoints, self._settings, places),
                *clusters.resources(topology, self._settings),
            )
        return self._routed
