"""Hosts that are this machine itself."""

import ipaddress

_LOCALHOST = "localhost"


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine reaches it, or answers for it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == _LOCALHOST


def is_here(host: str) -> bool:
    """Whether a connection to it ends on this machine: loopback, or the address of all addresses."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host == _LOCALHOST
    return found.is_loopback or found.is_unspecified
