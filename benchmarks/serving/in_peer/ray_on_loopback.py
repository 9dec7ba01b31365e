"""Ray Serve's gRPC servers would listen on all addresses and have no setting for that.

Run at the start of each of its processes.
"""

from __future__ import annotations

from typing import Any


def listen() -> None:
    """On loopback instead."""
    from grpc.aio._server import Server  # the class that is made, not its interface

    add = Server.add_insecure_port

    def on_loopback(self: Any, address: str) -> int:
        return add(self, address.replace("[::]", "127.0.0.1"))

    Server.add_insecure_port = on_loopback  # type: ignore[method-assign] # that is the point
