"""HTTP/1.1 POST calls, one at a time on a connection that stays open."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from benchmarks.generator.connection import Ended, received

_END = b"\r\n\r\n"


class HttpConnection:
    """Calls of one resource; answers must say their length."""

    def __init__(
        self,
        sock: socket.socket,
        requests: Sequence[bytes],  # head and body
        lengths: Sequence[int],
    ) -> None:
        self.sock = sock
        self._requests = requests
        self._lengths = lengths
        self._call: tuple[int, float] | None = None
        self._out = b""
        self._in = b""
        self._needed = 0  # bytes of head and body; 0: the head is not complete
        self._body_at = 0

    @property
    def free(self) -> int:
        return 0 if self._call else 1

    def begin(self, number: int, due: float) -> None:
        self._call = (number, due)
        self._out = self._requests[number]

    def flush(self) -> None:
        if self._out:
            self.sock.sendall(self._out)
            self._out = b""

    def receive(self) -> list[Ended]:
        data = self._in = self._in + received(self.sock)
        if not self._needed:
            at = data.find(_END)
            if at < 0:
                return []
            self._body_at = at + 4
            self._needed = self._body_at + _length(data[: at + 2])
        if len(data) < self._needed:
            return []
        body = data[self._body_at : self._needed]
        error = "" if data[9:12] == b"200" else f"HTTP {data[9:12].decode('latin-1')}"
        return [self._end(body, error)]

    def _end(self, body: bytes, error: str) -> Ended:
        if self._call is None:
            raise ConnectionError(f"an answer that nobody asked for: {self._in[:200]!r}")
        number, due = self._call
        self._call, self._in, self._needed = None, b"", 0
        if not error and self._lengths and len(body) != self._lengths[number]:
            error = f"{len(body)} bytes instead of {self._lengths[number]}"
        return Ended(number, due, body, error)


def prepared(path: str, content_type: str, bodies: Sequence[bytes]) -> list[bytes]:
    """Whole requests."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: "
    return [head.encode() + b"%d\r\n\r\n" % len(body) + body for body in bodies]


def _length(head: bytes) -> int:
    head = head.lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        raise ConnectionError(f"an answer without its length: {head!r}")
    return int(head[at + 17 : head.index(b"\r\n", at + 2)])
