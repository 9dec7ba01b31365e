"""Ray's gRPC proxy would listen on all addresses and has no setting for that; run at the start of its processes."""

from __future__ import annotations

from typing import Any


def listen() -> None:
    """On loopback instead."""
    from ray.serve._private import default_impl

    add = default_impl.add_grpc_address

    def on_loopback(server: Any, address: str) -> Any:
        return add(server, address.replace("[::]", "127.0.0.1"))

    default_impl.add_grpc_address = on_loopback
