"""An authority for a test, and what it issues."""

import datetime as dt
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from services.cli.adapters import ca
from services.cli.adapters.ca import CertificateAuthority
from services.cli.adapters.ca_store import IssuedRecord
from services.cli.adapters.certificates import Subject
from services.rpc.peer_kind import PeerKind
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY, Security, TlsFiles

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # RFC 9113, 3.4


@dataclass(frozen=True, slots=True)
class MeshCertificates:
    """Certificates in folders below one."""

    folder: Path
    authority: CertificateAuthority

    @classmethod
    def begin(cls, folder: Path) -> "MeshCertificates":
        """With a new authority."""
        authority = CertificateAuthority(folder / "ca")
        authority.begin(10, None, ca.now())
        return cls(folder, authority)

    def issue(
        self, name: str, kind: PeerKind, *, days: float = 1, ago: dt.timedelta = dt.timedelta()
    ) -> Path:
        """A certificate for 127.0.0.1, issued so long ago; its folder."""
        subject = Subject(name=name, kind=kind, addresses=("127.0.0.1",))
        record = self.authority.issue(subject, days, self.folder / name, ca.now() - ago)
        return Path(record.folder)

    def security(self, name: str, kind: PeerKind) -> Security:
        """The same, as a process uses it."""
        return Security(TlsFiles(self.issue(name, kind)))

    def record(self, name: str) -> IssuedRecord:
        """What was issued last under a name."""
        return self.authority.find(name)


def client_context(folder: Path, *, shows: bool = True) -> ssl.SSLContext:
    """A TLS client that trusts what the folder trusts, and shows its certificate or none."""
    context = ssl.create_default_context(cafile=str(folder / AUTHORITIES))
    if shows:
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    context.set_alpn_protocols(["h2"])
    return context


def serial_at(address: str, context: ssl.SSLContext, name: str = "127.0.0.1") -> str:
    """The number of the certificate that a new connection is shown. SSLError, or OSError if it is closed."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        # TLS 1.3: whether the server takes the client's certificate is known once it answers, or closes.
        secured.sendall(_PREFACE)
        if not secured.recv(1):
            raise ConnectionResetError("closed after the handshake")
        shown = secured.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"]).rjust(40, "0")
