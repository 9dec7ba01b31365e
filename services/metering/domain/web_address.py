"""Addresses on the web that this process calls: those where nobody between can answer."""

from urllib.parse import urlsplit

from services.rpc.loopback import is_loopback


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
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
