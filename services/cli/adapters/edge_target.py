"""Where an edge is, as people type it: `host:port`, `unix:/path`, or `https://host:port` with TLS."""

import os
import ssl
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from services.cli.domain.exit_code import UsageError
from services.rpc import address as addresses
from services.rpc import channel as channels
from services.rpc.address import Address
from services.rpc.settings import PREFIX, Settings, load
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY

_SECURE, _PLAIN = "https://", "http://"
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # by the address of all addresses
_given: ContextVar[Path | None] = ContextVar("ca", default=None)


class _Environment(Settings):
    """What TLS to an edge needs."""

    ca: Path | None = None
    client_certificate: Path | None = None  # a folder with cert.pem and key.pem


class EdgeTls(Settings):
    """Whether the edge that `up` starts speaks TLS; the router has these settings too."""

    edge_certificate: str = ""

    @property
    def is_on(self) -> bool:
        """It does."""
        return bool(self.edge_certificate)

    @property
    def authority_beside(self) -> Path | None:
        """Whom clients check it with, where `ca issue` has put the certificate."""
        if not self.is_on:
            return None
        beside = Path(self.edge_certificate).with_name(AUTHORITIES)
        return beside if beside.is_file() else None


def edge_tls() -> EdgeTls:
    """As the environment says."""
    return load(EdgeTls)


@dataclass(frozen=True, slots=True)
class EdgeTarget:
    """An address, and whether TLS is spoken there."""

    address: Address
    is_secure: bool

    def __str__(self) -> str:
        return f"{_SECURE if self.is_secure else ''}{self.address}"


def trust(authorities: Path) -> None:
    """From now on edges are checked with these authorities, in PEM."""
    _given.set(authorities)


def parse(text: str) -> EdgeTarget:
    """Read an address; InvalidArgumentError names what is allowed."""
    if not text.startswith(_SECURE):
        return EdgeTarget(
            addresses.parse(text.removeprefix(_PLAIN).rstrip("/"), "--address"), False
        )
    place = text.removeprefix(_SECURE).rstrip("/")
    has_port = place.rpartition(":")[2].isdecimal() and not place.endswith("]")
    return EdgeTarget(addresses.parse(place if has_port else f"{place}:443", "--address"), True)


def from_here(edge: str, *, is_secure: bool) -> str:
    """How clients on this machine call an edge: no certificate is for the address of all addresses."""
    found = addresses.parse(edge)
    return str(EdgeTarget(replace(found, host=_LOOPBACK.get(found.host, found.host)), is_secure))


def open_channel(target: EdgeTarget) -> grpc.aio.Channel:
    """A channel there; the certificate must be for the host that was typed."""
    if not target.is_secure:
        return channels.connect(str(target.address))
    authorities, own = _material()
    certificate, key = (_read(own / CERTIFICATE), _read(own / KEY)) if own else (None, None)
    credentials = grpc.ssl_channel_credentials(
        _read(authorities) if authorities else None, key, certificate
    )
    return grpc.aio.secure_channel(str(target.address), credentials, options=channels.options())


def context(target: EdgeTarget) -> ssl.SSLContext | None:
    """The same for HTTP; None: no TLS."""
    if not target.is_secure:
        return None
    authorities, own = _material()
    try:
        made = ssl.create_default_context(cafile=authorities)
        if own is not None:
            made.load_cert_chain(own / CERTIFICATE, own / KEY)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"{authorities or own}: no certificate: {error}") from error
    return made


def _material() -> tuple[Path | None, Path | None]:
    """Authorities (None: the system's), and the folder of a certificate to show."""
    environment = load(_Environment)
    return _given.get() or environment.ca, environment.client_certificate


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        names = f"--ca, {PREFIX}CA or {PREFIX}CLIENT_CERTIFICATE"
        raise UsageError(
            f"{path}: {os.strerror(error.errno or 0)}; {names} must be right"
        ) from error
