"""What the loops need of a connection."""

from __future__ import annotations

import socket
from typing import NamedTuple, Protocol

from services.rpc import address as addresses


class Ended(NamedTuple):
    """A call that is over."""

    number: int  # of its request
    due: float  # when it was to begin, as given to `begin`
    body: bytes  # empty if it failed
    error: str  # empty if status and length are right


class Connection(Protocol):
    """One connection with calls on it; used from one thread."""

    sock: socket.socket

    @property
    def free(self) -> int:
        """How many more calls may begin now."""

    def begin(self, number: int, due: float) -> None:
        """Put a call into the buffer of what is to be sent."""

    def flush(self) -> None:
        """Send the buffer."""

    def receive(self) -> list[Ended]:
        """Read once and return the calls that this ended; ConnectionError if the peer is gone."""


def dial(address: str) -> socket.socket:
    """A blocking socket to `host:port` or `unix:/path`."""
    parsed = addresses.parse(address)
    if parsed.path is not None:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(parsed.path)
        return sock
    sock = socket.create_connection((parsed.host, parsed.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def received(sock: socket.socket) -> bytes:
    """What there is to read, at least a byte; ConnectionError at the end."""
    # More would be mapped by the kernel, and given back, at each call (glibc does so from 128 KiB): 30 µs.
    data = sock.recv(1 << 16)
    if not data:
        raise ConnectionError("the peer closed the connection")
    return data
