"""What the router reads from the environment."""

from typing import Annotated, Literal

from pydantic import Field

from services.router.resources.edge import Edge
from services.rpc.settings import Settings


class RouterSettings(Settings):
    """Every field is `INFERPLANE_` + its name in capitals."""

    registry_address: str = "127.0.0.1:8081"
    discovery_address: str = ""  # empty: the registry's
    router_address: str = "127.0.0.1:8082"  # where this process listens
    edge_address: str = "127.0.0.1:8080"  # where Envoy listens for clients
    max_message_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 64 * 1024 * 1024
    lease_seconds: Annotated[float, Field(ge=1, le=60)] = 5.0
    envoy_access_log: str = ""  # file that Envoy appends JSON lines to; empty: none
    metrics_address: str = ""  # `host:port`; empty: none
    log_level: str = "info"
    log_style: Literal["json", "console"] = "json"
    drain_seconds: Annotated[float, Field(ge=0)] = 30.0

    def discovery(self) -> str:
        """Where discovery is."""
        return self.discovery_address or self.registry_address

    def edge(self, router_address: str) -> Edge:
        """What the resources need; `router_address` is where this process really listens."""
        return Edge(
            address=self.edge_address,
            registry_address=self.registry_address,
            discovery_address=self.discovery(),
            router_address=router_address,
            max_message_bytes=self.max_message_bytes,
            access_log=self.envoy_access_log,
        )
