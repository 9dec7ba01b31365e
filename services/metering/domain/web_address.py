"""Addresses on the web that this process calls: those where nobody between can answer."""

import ipaddress
from urllib.parse import urlsplit


def is_secure(url: str) -> bool:
    """Whether it is https, or http on this machine itself; what is no URL is not."""
    if not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # which is not looked at before
    except ValueError:
        return False
    if not host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
