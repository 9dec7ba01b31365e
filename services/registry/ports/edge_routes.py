"""The edge's routes: whether calls of an endpoint reach a version by now."""

from typing import Protocol

from services.rpc.names import EndpointName, VersionName


class EdgeRoutes(Protocol):
    """Asked where a caller is told that something is in effect; any number of callers at once."""

    async def wait_routed(self, endpoint: EndpointName, version: VersionName) -> None:
        """Return once calls reach the version, or after some seconds if they don't: never an error."""
        ...
