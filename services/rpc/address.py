"""Addresses that services listen on and dial: `host:port` or `unix:/path`; several peers by a list or one name."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from services.rpc.errors import InvalidArgumentError
from services.rpc.loopback import is_loopback

_LONGEST_SOCKET_PATH = 107  # bytes; sockaddr_un.sun_path less its NUL (unix(7))


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is: a unix socket (`path`) or a TCP host and port."""

    path: str | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is TCP that nobody beyond this machine reaches."""
        return self.path is None and is_loopback(self.host)

    @property
    def is_name(self) -> bool:
        """Whether it must be looked up, and may then be several hosts, other ones each time."""
        if self.path is not None or self.is_loopback:
            return False
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return True
        return False


def parse(text: str, field: str = "address") -> Address:
    """Parse `host:port`, `[v6]:port` or `unix:/path`; InvalidArgumentError names `field`."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/") or len(path.encode()) > _LONGEST_SOCKET_PATH:
            raise InvalidArgumentError.of_field(
                field,
                f"{path!r} is not a socket path; allowed: absolute, at most"
                f" {_LONGEST_SOCKET_PATH} bytes",
            )
        return Address(path=path)
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or not host or "," in host:
        raise InvalidArgumentError.of_field(
            field, f"{text!r} is not an address; allowed: host:port or unix:/path"
        )
    return Address(host=host.strip("[]"), port=int(port))


def parse_peers(text: str, field: str = "address") -> tuple[Address, ...]:
    """Parse `a:1,b:1`: processes that serve the same. One address is a list too; a unix socket only comes alone.

    InvalidArgumentError names `field`, and which part of the list is wrong.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 or text.startswith("unix:"):
        return (parse(text, field),)
    found = tuple(parse(part, field) for part in parts)
    if any(address.path is not None for address in found):
        raise InvalidArgumentError.of_field(
            field, f"{text!r} lists a unix socket; allowed in a list: host:port,host:port"
        )
    if len(set(found)) < len(found):
        raise InvalidArgumentError.of_field(
            field, f"{text!r} lists an address twice; allowed: each once"
        )
    return found


def are_several(text: str) -> bool:
    """Whether these peers are, or may be, several: a list or a name."""
    peers = parse_peers(text)
    return len(peers) > 1 or peers[0].is_name


def prepare_socket(address: Address) -> None:
    """Make the socket's folder, readable by its owner only; nothing for TCP."""
    if address.path is not None:
        Path(address.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
