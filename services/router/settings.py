"""What the router reads from the environment."""

import ipaddress
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from services.router.resources.edge import ClientCertificate, Edge
from services.rpc import address as addresses
from services.rpc import tls
from services.rpc.consul_settings import DiscoverySettings
from services.rpc.errors import InvalidArgumentError


def _address(text: str) -> str:
    """Check `host:port` or `unix:/path`; empty stands for a default."""
    try:
        addresses.parse(text or "127.0.0.1:0")
    except InvalidArgumentError as error:
        raise ValueError(error.message) from error
    return text


def _peers(text: str) -> str:
    """The same, or several with commas between."""
    try:
        addresses.parse_peers(text or "127.0.0.1:0")
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
Peers = Annotated[str, AfterValidator(_peers)]


class RouterSettings(DiscoverySettings):
    """Every field is `INFERPLANE_` + its name in capitals."""

    registry_address: Peers = "127.0.0.1:8081"
    discovery_address: Peers = ""  # empty: the registry's
    metering_address: Peers = "127.0.0.1:8084"
    # Whether callers need a key. Off: for trying things out; nobody is known and nothing is limited.
    edge_auth: Literal["required", "off"] = "required"
    router_address: Address = "127.0.0.1:8082"  # where this process listens
    # Where the edge reaches the routers, all of them and the same on each; empty: where this process listens.
    advertised_address: Peers = ""
    # Where Envoy listens for clients: an IP address and port, or a socket.
    edge_address: Annotated[str, AfterValidator(_bindable)] = "127.0.0.1:8080"
    # TLS for clients: files on Envoy's machine, absolute; empty certificate: plain. An empty key is key.pem beside it.
    edge_certificate: str = ""
    edge_key: str = ""
    # By whom clients' own certificates must be, if they may (optional) or must show one; they need an API key besides.
    edge_client_ca: str = ""
    edge_client_certificate: ClientCertificate = ClientCertificate.OFF
    # Envoy's own certificate towards workers and services on TCP: an absolute folder on its machine, with cert.pem,
    # key.pem and ca.pem; empty: they are reached in plain.
    edge_tls_dir: str = ""
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

    @field_validator("edge_certificate", "edge_key", "edge_client_ca", "edge_tls_dir")
    @classmethod
    def _is_absolute(cls, value: str) -> str:
        if value and not PurePosixPath(value).is_absolute():
            raise ValueError("allowed: an absolute path on Envoy's machine, or nothing")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        asks = self.edge_client_certificate is not ClientCertificate.OFF
        if asks and not (self.edge_certificate and self.edge_client_ca):
            raise ValueError(
                "INFERPLANE_EDGE_CLIENT_CERTIFICATE needs INFERPLANE_EDGE_CERTIFICATE, which makes"
                " the edge one of TLS, and INFERPLANE_EDGE_CLIENT_CA"
            )
        return self

    def discovery_service(self) -> str:
        """Where DiscoveryService is, whoever keeps the list."""
        return self.discovery_address or self.registry_address

    def edge(self) -> Edge:
        """What the resources need."""
        return Edge(
            address=self.edge_address,
            registry_address=self.registry_address,
            discovery_address=self.discovery_service(),
            router_address=self.advertised_address or self.router_address,
            metering_address=self.metering_address,
            asks_for_keys=self.edge_auth == "required",
            certificate=self.edge_certificate,
            key=self.edge_key or str(PurePosixPath(self.edge_certificate).parent / tls.KEY),
            client_ca=self.edge_client_ca,
            client_certificate=self.edge_client_certificate,
            tls_dir=self.edge_tls_dir,
            max_message_bytes=self.max_message_bytes,
            stall_seconds=self.edge_stall_seconds,
            has_module=self.edge_module,
            access_log=self.envoy_access_log,
        )
