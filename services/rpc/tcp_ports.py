"""TCP ports of this machine that servers may listen on."""

import random
import socket
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from services.rpc.address import Address

_LOWEST = 10_240  # below are those of well-known services
_HIGHEST = 65_535
_ENOUGH = 1_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# The newest claims of this process; whoever got an older one has long listened.
_claims: deque[socket.socket] = deque(maxlen=64)


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that is free now, and stays so until its server listens, however many look for one at once.

    None that the system gives to connections, where it leaves enough others: a connection of anybody may take such a
    port in the meantime. And, on Linux, none that another process got from here a moment ago.
    """
    for port in random.sample(_candidates(), k=_ENOUGH):
        if is_free(Address(host=host, port=port)) and _claim(port):
            return port
    with socket.socket() as probe:  # an odd machine: whatever the system has
        probe.bind((host, 0))
        taken: int = probe.getsockname()[1]
        return taken


def is_free(address: Address) -> bool:
    """Whether a server could listen at a TCP address now."""
    with socket.socket() as probe:
        # As servers do it: connections that a dead process left behind don't hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError:
            return False
        return True


def _candidates() -> Sequence[int]:
    """Ports that the system does not give to connections; all, where those are few."""
    first, last = 49_152, _HIGHEST  # RFC 6335, 6
    with suppress(OSError, ValueError):
        first, last = (int(word) for word in _RANGE.read_text().split())
    others = (range(_LOWEST, first), range(last + 1, _HIGHEST + 1))
    return next((ports for ports in others if len(ports) >= _ENOUGH), range(_LOWEST, _HIGHEST + 1))


def _claim(port: int) -> bool:
    """Take a name that only one process of this network can have: it ends with the process, and leaves no file."""
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0inferplane.port.{port}")
    except OSError:
        claim.close()
        return False
    if len(_claims) == _claims.maxlen:
        _claims[0].close()
    _claims.append(claim)
    return True
