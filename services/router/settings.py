"""What the router reads from the environment."""

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from services.router.resources.edge import Edge
from services.rpc import address as addresses
from services.rpc.errors import InvalidArgumentError
from services.rpc.settings import Settings


def _address(text: str) -> str:
    """Check `host:port` or `unix:/path`; empty stands for a default."""
    try:
        addresses.parse(text or "127.0.0.1:0")
    except InvalidArgumentError as error:
        raise ValueError(error.message) from error
    return text


def _bindable(text: str) -> str:
    """Check that Envoy can listen there: it resolves no names for a listener."""
    parsed = addresses.parse(_address(text))
    if parsed.path is None:
        ipaddress.ip_address(parsed.host)  # its ValueError names the host
    return text


Address = Annotated[str, AfterValidator(_address)]


class RouterSettings(Settings):
    """Every field is `INFERPLANE_` + its name in capitals."""

    registry_address: Address = "127.0.0.1:8081"
    discovery_address: Address = ""  # empty: the registry's
    metering_address: Address = "127.0.0.1:8084"
    # Whether callers need a key. Off: for trying things out; nobody is known and nothing is limited.
    edge_auth: Literal["required", "off"] = "off"
    router_address: Address = "127.0.0.1:8082"  # where this process listens
    # Where Envoy listens for clients: an IP address and port, or a socket.
    edge_address: Annotated[str, AfterValidator(_bindable)] = "127.0.0.1:8080"
    max_message_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 64 * 1024 * 1024
    lease_seconds: Annotated[float, Field(ge=1, le=60)] = 5.0
    edge_stall_seconds: Annotated[float, Field(gt=0)] = 30.0  # for a request that stops arriving
    # Envoy has our module, which reads endpoints from calls at a fraction of the cost of its own filters.
    edge_module: bool = False
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
            metering_address=self.metering_address,
            asks_for_keys=self.edge_auth == "required",
            max_message_bytes=self.max_message_bytes,
            stall_seconds=self.edge_stall_seconds,
            has_module=self.edge_module,
            access_log=self.envoy_access_log,
        )
