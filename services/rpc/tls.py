"""TLS between processes: certificate, key and trusted authorities of a folder, read again when they are replaced.

Who a process is stands in its certificate: the URI `inferplane://KIND`, and the DNS name `KIND.inferplane.internal`,
which clients ask for instead of the host's name. So a worker can't pass for a registry, wherever it runs.

Logs, metrics and what reads certificates take long to import, and most who import this have no certificate: commands of
the command line, processes on unix sockets. So they are imported where they are used.
"""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from services.rpc.address import Address
from services.rpc.errors import FailedPreconditionError
from services.rpc.peer_kind import PeerKind

if TYPE_CHECKING:
    from prometheus_client import Gauge

CERTIFICATE = "cert.pem"  # the process's own, and what stands between it and the authority
KEY = "key.pem"
AUTHORITIES = "ca.pem"  # whom it trusts; two of them while one replaces the other
# A link to the folder of the current set: who replaces it replaces all three at once. (Kubernetes does the same.)
CURRENT = "..data"

_Stamp = tuple[tuple[int, int], ...]


@cache
def _log() -> Any:
    import structlog

    return structlog.get_logger(__name__)


@cache
def _expires() -> "Gauge":
    from prometheus_client import Gauge

    return Gauge(
        "inferplane_certificate_expiry_timestamp_seconds",
        "When the certificate that this process shows, or the first authority that it trusts, ends.",
        ["of"],
    )


@dataclass(frozen=True, slots=True)
class Material:
    """One set: PEM texts that belong together."""

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes
    folder: Path  # where this very set lies


class TlsFiles:
    """The set of a folder, as new as it is when asked for; cheap enough for every handshake."""

    def __init__(self, folder: Path) -> None:
        """Read the set. Raises FailedPreconditionError if there is none that holds together."""
        self.folder = folder
        try:
            self._stamp = self._stamp_now()
            self._material = self._read()
        except (OSError, ValueError) as error:
            raise FailedPreconditionError(
                f"{folder} has no certificate to serve with: {error}; wanted are {CERTIFICATE}, {KEY} and"
                f" {AUTHORITIES}, as `inferplane ca issue` writes them",
                reason="TLS_FILES",
                metadata={"folder": str(folder)},
            ) from error

    def current(self) -> Material:
        """The newest set that holds together."""
        try:
            stamp = self._stamp_now()
            if stamp != self._stamp:
                self._material = self._read()
                self._stamp = stamp
                _log().info("certificate replaced", folder=str(self.folder))
        except (OSError, ValueError) as error:
            # Halves of two sets, while somebody replaces file by file; or a mistake, which ends nothing.
            _log().warning("certificate not usable, the last one stays", error=str(error))
        return self._material

    def _stamp_now(self) -> _Stamp:
        found = [(self.folder / name).stat() for name in (CERTIFICATE, KEY, AUTHORITIES)]
        return tuple((status.st_mtime_ns, status.st_ino) for status in found)

    def _read(self) -> Material:
        link = self.folder / CURRENT
        folder = link.resolve(strict=True) if link.is_symlink() else self.folder
        texts = [(folder / name).read_bytes() for name in (CERTIFICATE, KEY, AUTHORITIES)]
        certificate, key, authorities = texts
        material = Material(certificate, key, authorities, folder)
        _context(
            material
        )  # says whether key and certificate belong together (SSLError is an OSError)
        _tell_ends(material)
        return material


def _tell_ends(material: Material) -> None:
    from cryptography import x509

    own = x509.load_pem_x509_certificate(material.certificate)
    trusted = x509.load_pem_x509_certificates(material.authorities)
    _expires().labels("own").set(own.not_valid_after_utc.timestamp())
    _expires().labels("authority").set(min(a.not_valid_after_utc.timestamp() for a in trusted))


@dataclass(frozen=True, slots=True)
class Security:
    """How a process guards its TCP ports. Unix sockets are guarded by their folder."""

    files: TlsFiles | None = None
    insecure_tcp: bool = False  # plain TCP beyond this machine is wanted

    def files_for(self, address: Address) -> TlsFiles | None:
        """What secures this address; None: nothing need. Raises FailedPreconditionError where something must."""
        if address.path is not None:
            return None
        if self.files is None and not address.is_loopback:
            self._refuse_plain(address)
        return self.files

    def _refuse_plain(self, address: Address) -> None:
        if self.insecure_tcp:
            _log().warning(
                "plain TCP: who is on the way can listen and pretend", address=str(address)
            )
            return
        raise FailedPreconditionError(
            f"{address} is TCP beyond this machine, and INFERPLANE_TLS_DIR names no certificate;"
            " set it, or INFERPLANE_INSECURE_TCP=1 where the network itself is trusted",
            reason="INSECURE_ADDRESS",
            metadata={"address": str(address)},
        )


PLAIN = Security()


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """For gRPC servers: each handshake has the newest set, and the peer must show a certificate."""

    def newest() -> grpc.ServerCertificateConfiguration:
        now = files.current()
        return grpc.ssl_server_certificate_configuration(
            [(now.key, now.certificate)], root_certificates=now.authorities
        )

    return grpc.dynamic_ssl_server_credentials(newest(), newest, require_client_authentication=True)


def _context(material: Material) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A session that is taken up again would be believed by what was trusted when it began.
    context.num_tickets = 0
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(material.folder / CERTIFICATE, material.folder / KEY)
    context.load_verify_locations(cadata=material.authorities.decode())
    context.set_alpn_protocols(["h2"])
    return context


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """For servers that are not gRPC's: each handshake has the newest set, and the peer must show a certificate."""
    newest = files.current()
    context = _context(newest)
    made = context

    def choose(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        nonlocal newest, made
        material = files.current()
        if material is not newest:
            newest, made = material, _context(material)
        connection.context = made

    context.sni_callback = choose
    return context


def kinds_of(uris: Iterable[str]) -> frozenset[PeerKind]:
    """What the URIs of a certificate say that its holder is."""
    said = set(uris)
    return frozenset(kind for kind in PeerKind if kind.uri in said)
