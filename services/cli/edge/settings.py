"""Settings of the edge's process, from INFERPLANE_* variables."""

import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from services.rpc import address as addresses
from services.rpc.address import Address
from services.rpc.errors import InvalidArgumentError
from services.rpc.settings import Settings


def _peers(text: str) -> str:
    try:
        addresses.parse_peers(text)
    except InvalidArgumentError as error:
        raise ValueError(error.message) from error
    return text


def _bindable(text: str) -> str:
    if text:
        _peers(text)
        if addresses.parse(text).is_name:
            raise ValueError(f"{text!r} is a name; allowed: an IP address and port, or unix:/path")
    return text


class EdgeSettings(Settings):
    """Every field is a variable: INFERPLANE_ and the field's name in capitals.

    What Envoy serves, and where it listens for clients, comes from the router (`edge_*` of its settings).
    """

    # One router, several that serve the same with commas between, or a name of several.
    router_address: Annotated[str, AfterValidator(_peers)] = "127.0.0.1:8082"
    zone: str = Field(default="", max_length=63)  # workers of the same zone are preferred
    edge_id: str = Field(default_factory=lambda: f"edge-{socket.gethostname()}"[:63])
    # For Prometheus and probes: an IP address and port, or a socket; empty: a socket that nobody knows.
    metrics_address: Annotated[str, AfterValidator(_bindable)] = ""
    edge_threads: int = Field(default=0, ge=0)  # 0: as many as cores
    # At 95 % of it new requests are refused: below what the container may have, above max_message_bytes many times.
    edge_heap_bytes: int = Field(default=1024**3, ge=64 * 1024**2)
    drain_seconds: float = Field(default=30.0, ge=0)  # for calls that run when it is asked to stop
    # For so long connections are still taken then: balancers before the edge need a moment to look elsewhere.
    edge_linger_seconds: float = Field(default=1.0, ge=0)
    edge_run_dir: Path | None = None  # of its bootstrap and admin socket; None: a temporary one
    log_level: Literal["debug", "info", "warning", "error"] = "warning"

    def routers(self) -> tuple[Address, ...]:
        """Where its routers are."""
        return addresses.parse_peers(self.router_address)
