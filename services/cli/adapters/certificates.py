"""X.509: authorities of our own, and the certificates that they give."""

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.rpc.peer_kind import INTERNAL, PeerKind

_EARLY = dt.timedelta(hours=1)  # for clocks that are late
# What BoringSSL (Envoy, gRPC) takes by itself; Ed25519 it doesn't.
_CURVE = ec.SECP256R1()
# Names lie in files' names too.
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_HOST = re.compile(
    r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
    re.IGNORECASE,
)
_USES = {
    PeerKind.EDGE: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    PeerKind.WORKER: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    PeerKind.SERVICE: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    PeerKind.CLIENT: (ExtendedKeyUsageOID.CLIENT_AUTH,),
    PeerKind.STORE: (ExtendedKeyUsageOID.SERVER_AUTH,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom a certificate is for."""

    name: str
    kind: PeerKind
    dns: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()  # of IP


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate."""
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def serial(self) -> str:
        """Its number, as OpenSSL prints it."""
        return serial_of(self.parsed)


def serial_of(certificate: x509.Certificate) -> str:
    """A certificate's number, as OpenSSL prints it."""
    return f"{certificate.serial_number:040X}"


def subject_of(name: str, kind: PeerKind, dns: Sequence[str], addresses: Sequence[str]) -> Subject:
    """Whom to issue for; InvalidArgumentError tells all that can't stand in a certificate."""
    wrong = [] if _NAME.fullmatch(name) else [FieldViolation("NAME", _wanted(name, _NAME.pattern))]
    for text in dns:
        if not _HOST.fullmatch(text):
            wrong.append(FieldViolation("--dns", f"{text!r} is not a host name"))
        elif text == INTERNAL or text.endswith(f".{INTERNAL}"):
            wrong.append(FieldViolation("--dns", f"{text!r}: {INTERNAL} is given by --kind alone"))
    for text in addresses:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            wrong.append(FieldViolation("--ip", f"{text!r} is not an IP address"))
    if wrong:
        raise InvalidArgumentError.of_fields(wrong)
    return Subject(name=name, kind=kind, dns=tuple(dns), addresses=tuple(addresses))


def _wanted(given: str, pattern: str) -> str:
    return f"{given!r} was given; allowed: {pattern}"


def make_authority(now: dt.datetime, days: int) -> Issued:
    """A new authority. Each has a name of its own, so that two of them are told apart."""
    key = ec.generate_private_key(_CURVE)
    number = x509.random_serial_number()
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "inferplane"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"inferplane CA {number % (1 << 32):08x}"),
        ]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _issued(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Issued, subject: Subject, now: dt.datetime, days: float) -> Issued:
    """A certificate with a new key; it ends with its authority at the latest."""
    signer = _private_key(authority.key)
    issuer = authority.parsed
    key = ec.generate_private_key(_CURVE)
    ends = min(now + dt.timedelta(days=days), issuer.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject.name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now - _EARLY, ends - dt.timedelta(seconds=1)))
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USES[subject.kind]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_names(subject)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _issued(builder.sign(signer, hashes.SHA256()), key)


def _names(subject: Subject) -> list[x509.GeneralName]:
    dns = dict.fromkeys((subject.kind.server_name, *subject.dns))
    return [
        x509.UniformResourceIdentifier(subject.kind.uri),
        *(x509.DNSName(name) for name in dns),
        *(x509.IPAddress(ipaddress.ip_address(text)) for text in dict.fromkeys(subject.addresses)),
    ]


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is no elliptic one")
    return key


def _issued(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    return Issued(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
