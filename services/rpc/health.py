"""Asks a server whether it serves (grpc.health.v1): `python -m services.rpc.health`, for containers' health checks.

A program of the standard library alone, which may also be started as a file, with `python -I -S`: it runs in every
container every few seconds, and gRPC alone would take ten times as long to load as this takes in all. One call of
HTTP/2 (RFC 9113) is a few frames.
"""

import argparse
import os
import socket
import ssl
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, 3.4
_HTTP = "http://"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_STREAM = 1
_WORDS = {1: "SERVING", 2: "NOT_SERVING"}  # HealthCheckResponse.ServingStatus
_SERVERS = {"inferplane://service", "inferplane://worker"}  # as peer_kind.py has them
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class NoAnswerError(Exception):
    """The server did not say."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _text(text: str) -> bytes:
    """A string as HPACK has it, not compressed (RFC 7541, 5.2)."""
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()


def _request(service: str, *, secure: bool) -> bytes:
    """Preface, settings and one call of Check."""
    fields = [
        b"\x83\x87" if secure else b"\x83\x86",  # :method POST, :scheme (RFC 7541, appendix A)
        b"\x04" + _text("/grpc.health.v1.Health/Check"),
        b"\x01" + _text("health"),  # :authority
        b"\x0f\x10" + _text("application/grpc"),
        b"\x00" + _text("te") + _text("trailers"),
    ]
    name = service.encode()
    message = b"\x0a" + bytes([len(name)]) + name if name else b""
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, _STREAM, b"".join(fields))
        + _frame(_DATA, _END_STREAM, _STREAM, struct.pack(">BI", 0, len(message)) + message)
    )


def _frames(peer: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Kind, flags and payload of what the server sends."""
    held = b""
    while received := peer.recv(65536):
        held += received
        while len(held) >= 9 and len(held) >= 9 + (length := int.from_bytes(held[:3])):
            yield held[3], held[4], held[9 : 9 + length]
            held = held[9 + length :]
    raise NoAnswerError("the connection was closed; is the certificate one that may ask?")


def _status(peer: socket.socket, service: str) -> str:
    """What the server answers. Raises NoAnswerError."""
    peer.sendall(_request(service, secure=isinstance(peer, ssl.SSLSocket)))
    said = b""
    for kind, flags, payload in _frames(peer):
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            peer.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _DATA:
            said += payload
            if len(said) >= 7:  # a prefix of five bytes, and the message's one field
                return _WORDS.get(said[6], "UNKNOWN")
        elif kind in (_RESET, _GOAWAY) or (kind == _HEADERS and flags & _END_STREAM):
            raise NoAnswerError("the call was refused")
    raise AssertionError  # frames end with an error


def _connected(address: str, seconds: float) -> socket.socket:
    if address.startswith("unix:"):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(seconds)
        peer.connect(address.removeprefix("unix:"))
        return peer
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return socket.create_connection((_ANYWHERE.get(host, host), int(port)), timeout=seconds)


def _secured(peer: socket.socket, folder: Path) -> ssl.SSLSocket:
    """TLS with the process's own certificate, to a server of the mesh whatever its host is called."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.check_hostname = False  # names are by kind
    context.set_alpn_protocols(["h2"])
    secured = context.wrap_socket(peer)
    shown = secured.getpeercert() or {}
    names = cast(tuple[tuple[str, str], ...], shown.get("subjectAltName", ()))
    said = {value for form, value in names if form == "URI"}
    if not said & _SERVERS:
        raise NoAnswerError("the server's certificate is not one of a service or a worker")
    return secured


def ask(address: str, *, service: str = "", tls: Path | None = None, seconds: float = 3.0) -> str:
    """The status in words. Raises NoAnswerError, and OSError where nobody is reached."""
    peer = _connected(address, seconds)
    with peer if tls is None or address.startswith("unix:") else _secured(peer, tls) as talking:
        return _status(talking, service)


def is_ready(url: str, seconds: float = 3.0) -> bool:
    """Whether an HTTP server answers 200, as Envoy does at /ready. Raises OSError where nobody is reached."""
    place, _, path = url.removeprefix(_HTTP).partition("/")
    with _connected(place, seconds) as peer:
        peer.sendall(f"GET /{path} HTTP/1.1\r\nHost: health\r\nConnection: close\r\n\r\n".encode())
        return peer.recv(64).split()[1:2] == [b"200"]


def _said(given: argparse.Namespace, tls: Path | None) -> str:
    if given.address.startswith(_HTTP):
        return "SERVING" if is_ready(given.address, given.seconds) else "NOT_SERVING"
    return ask(given.address, service=given.service, tls=tls, seconds=given.seconds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m services.rpc.health", description=__doc__)
    parser.add_argument(
        "address",
        help="host:port or unix:/path; 0.0.0.0 asks 127.0.0.1; or http://host:port/path, for 200",
    )
    parser.add_argument("--service", default="", help="of one service or model version; all: empty")
    parser.add_argument(
        "--standby-ok", action="store_true", help="NOT_SERVING is as good: it is there and answers"
    )
    parser.add_argument("--tls-dir", type=Path, help="certificate; else INFERPLANE_TLS_DIR")
    parser.add_argument("--seconds", type=float, default=3.0, help="longest wait (%(default)s)")
    return parser.parse_args()


def main() -> int:
    """0: it serves; 1: it does not, or does not say, and why on standard error."""
    given = _arguments()
    # Not by settings.py: see above.
    folder = given.tls_dir or os.environ.get("INFERPLANE_TLS_DIR")
    tls = Path(folder) if folder else None
    try:
        said = _said(given, tls)
    except (NoAnswerError, OSError, ValueError) as error:
        sys.stderr.write(f"{given.address}: {error}\n")
        return 1
    print(said)  # noqa: T201 - a program's answer
    return 0 if said == "SERVING" or (given.standby_ok and said == "NOT_SERVING") else 1


if __name__ == "__main__":
    sys.exit(main())
