"""All resources of a topology."""

from services.router.domain.snapshot import Resource
from services.router.domain.topology import Topology
from services.router.resources import clusters, edge, listener, routes


class ResourceBuilder:
    """Turns a topology into what Envoy gets; equal topologies give equal bytes."""

    def __init__(self, settings: edge.Edge) -> None:
        self._settings = settings
        self._listener = listener.resource(settings)

    def build(self, topology: Topology) -> list[Resource]:
        """Listener, routes, clusters and assignments."""
        return [
            self._listener,
            routes.resource(topology.endpoints, self._settings.max_message_bytes),
            *clusters.resources(topology.versions, topology.addresses, self._settings),
        ]
