"""Unary gRPC calls as a client's HTTP/2 frames, written and read by hand (RFC 9113, RFC 7541).

Headers of requests are the same for all calls: the first one puts them into the peer's dynamic table, later ones are a
byte each, as from any client. For answers the table is switched off (SETTINGS_HEADER_TABLE_SIZE 0), so that equal
trailers are equal bytes and `grpc-status` can be found without decoding the rest.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

from benchmarks.generator.connection import Ended, received

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 32
_TABLE_SIZE, _PUSH, _INITIAL_WINDOW = 1, 2, 4  # settings
_HEAD = struct.Struct(">HBBBI")  # 24 bits of length as 16 and 8, type, flags, stream
_LARGEST_FRAME = 16_384
_CREDIT = 1 << 30  # bytes that a peer may send before it needs more from us
_STATUS_NAMES = (b"\x0bgrpc-status", b"\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f")  # plain, Huffman
_STREAMS = 1_000  # calls at once; the peers' usual limits are at or above it


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) >> 8, len(payload) & 255, kind, flags, stream) + payload


def _literal(name: bytes | int, value: bytes) -> bytes:
    """A header that joins the table; `name` may be an index of the static table below 63."""
    head = bytes([0x40 | name]) if isinstance(name, int) else b"\x40" + _string(name)
    return head + _string(value)


def _string(text: bytes) -> bytes:
    if len(text) >= 127:
        raise ValueError(f"{text!r} is longer than this encoder writes")
    return bytes([len(text)]) + text


def _status(trailers: bytes) -> str:
    """The code in a block of trailers; empty for 0."""
    for name in _STATUS_NAMES:
        at = trailers.find(name)
        if at >= 0:
            at += len(name)
            code = trailers[at + 1 : at + 1 + (trailers[at] & 127)]
            return "" if code in {b"0", b"\x07"} else f"grpc-status {code.decode('latin-1')}"
    return f"no grpc-status in {trailers!r}"


class GrpcConnection:
    """Calls of one method, many at once."""

    def __init__(
        self, sock: socket.socket, path: str, bodies: Sequence[bytes], lengths: Sequence[int]
    ) -> None:
        self.sock = sock
        self._lengths = lengths
        self._live: dict[int, list[Any]] = {}  # stream → number, due, body
        self._held: deque[tuple[int, float]] = deque()  # waiting for the peer's window
        self._out: list[bytes] = []
        self._rest = b""
        self._next = 1
        self._window = 65_535  # bytes that may still be sent on this connection
        self._unreported = 0  # bytes received for which no window was given back
        self._statuses: dict[bytes, str] = {}
        literals = [
            _literal(4, path.encode()),
            _literal(1, b"localhost"),
            _literal(31, b"application/grpc"),
            _literal(b"te", b"trailers"),
            _literal(b"grpc-timeout", b"20S"),
        ]
        self._first = b"\x83\x86" + b"".join(literals)  # :method POST, :scheme http
        # The newest entry of the table has the lowest index, 62.
        self._block = b"\x83\x86" + bytes(
            0x80 | 61 + len(literals) - i for i in range(len(literals))
        )
        self._frames = [self._prepared(self._block, body) for body in bodies]
        self._bodies = bodies
        settings = {_TABLE_SIZE: 0, _PUSH: 0, _INITIAL_WINDOW: (1 << 31) - 1}
        payload = b"".join(struct.pack(">HI", *pair) for pair in settings.items())
        window = struct.pack(">I", _CREDIT)
        self.sock.sendall(
            _PREFACE + _frame(_SETTINGS, 0, 0, payload) + _frame(_WINDOW, 0, 0, window)
        )

    @staticmethod
    def _prepared(block: bytes, body: bytes) -> tuple[bytes, bytes, bytes]:
        """A call's bytes but for the stream's number, which comes between them."""
        message = b"\0" + len(body).to_bytes(4, "big") + body
        if len(message) > _LARGEST_FRAME:
            raise ValueError(f"a request of {len(body)} bytes is longer than one frame")
        head = _frame(_HEADERS, _END_HEADERS, 0, block)
        data = _frame(_DATA, _END_STREAM, 0, b"")
        size = len(message).to_bytes(3, "big")
        return head[:5], block + size + data[3:5], message

    @property
    def free(self) -> int:
        return _STREAMS - len(self._live) - len(self._held)

    def begin(self, number: int, due: float) -> None:
        head, middle, message = self._frames[number]
        if len(message) > self._window:
            self._held.append((number, due))
            return
        stream = self._next
        if stream == 1:
            head, middle, message = self._prepared(self._first, self._bodies[number])
        self._next = stream + 2
        self._window -= len(message)
        self._live[stream] = [number, due, b""]
        name = stream.to_bytes(4, "big")
        self._out += (head, name, middle, name, message)

    def flush(self) -> None:
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            self.sock.sendall(data)

    def receive(self) -> list[Ended]:
        data = self._rest + received(self.sock)
        ended: list[Ended] = []
        live, unpack, at, size = self._live, _HEAD.unpack_from, 0, len(data)
        while size - at >= 9:
            high, low, kind, flags, stream = unpack(data, at)
            end = at + 9 + (high << 8 | low)
            if end > size:
                break
            if kind == _DATA and stream in live:
                self._unreported += end - at - 9
                body = data[at + 9 : end]
                if flags & (_PADDED | _END_STREAM):
                    body = self._unusual_data(flags, body, stream, ended)
                call = live.get(stream)
                if call is not None:
                    call[2] = call[2] + body if call[2] else body
            elif kind == _HEADERS:
                if flags & _END_STREAM:
                    self._end(stream, flags, data[at + 9 : end], ended)
            else:
                self._other(kind, flags, stream, data[at + 9 : end], ended)
            at = end
        self._rest = data[at:]
        if self._unreported > _CREDIT // 2:
            self._out.append(_frame(_WINDOW, 0, 0, struct.pack(">I", self._unreported)))
            self._unreported = 0
        return ended

    def _end(self, stream: int, flags: int, block: bytes, ended: list[Ended]) -> None:
        call = self._live.pop(stream, None)
        if call is None:
            return
        if flags != _END_STREAM | _END_HEADERS:
            block = self._plain_block(flags, block)
        error = self._statuses.get(block)
        if error is None:
            error = self._statuses[block] = _status(block)
        number, due, body = call
        if not error:
            error = self._wrong(number, body)
        ended.append(Ended(number, due, body[5:], error))

    def _wrong(self, number: int, body: bytes) -> str:
        """What an answer with status 0 lacks."""
        if len(body) < 5 or int.from_bytes(body[1:5], "big") != len(body) - 5:
            return f"no whole message in {len(body)} bytes"
        if self._lengths and len(body) - 5 != self._lengths[number]:
            return f"{len(body) - 5} bytes instead of {self._lengths[number]}"
        return ""

    @staticmethod
    def _plain_block(flags: int, block: bytes) -> bytes:
        if not flags & _END_HEADERS:
            raise ConnectionError("headers in several frames are more than this client reads")
        if flags & _PADDED:
            block = block[1 : len(block) - block[0]]
        return block[5:] if flags & _PRIORITY else block

    def _unusual_data(self, flags: int, body: bytes, stream: int, ended: list[Ended]) -> bytes:
        if flags & _PADDED:
            body = body[1 : len(body) - body[0]]
        if flags & _END_STREAM:
            self._fail(stream, "ended without trailers", ended)
        return body

    def _other(
        self, kind: int, flags: int, stream: int, payload: bytes, ended: list[Ended]
    ) -> None:
        """Frames that do not belong to an ordinary answer."""
        if kind == _WINDOW and not stream:
            self._window += int.from_bytes(payload, "big") & 0x7FFFFFFF
            while self._held and len(self._frames[self._held[0][0]][2]) <= self._window:
                self.begin(*self._held.popleft())
        elif kind == _SETTINGS and not flags & _ACK:
            self._obey(payload)
            self._out.append(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._out.append(_frame(_PING, _ACK, 0, payload))
        elif kind == _RESET:
            self._fail(stream, f"reset with {int.from_bytes(payload, 'big')}", ended)
        elif kind == _GOAWAY:
            raise ConnectionError(f"the peer said goodbye: {payload!r}")

    def _obey(self, settings: bytes) -> None:
        """A peer that keeps no table, or gives streams less room than a message, is not for this client."""
        for at in range(0, len(settings), 6):
            name, value = struct.unpack_from(">HI", settings, at)
            if name == _TABLE_SIZE and value < 512:
                raise ConnectionError(f"the peer's header table has only {value} bytes")
            if name == _INITIAL_WINDOW and value < _LARGEST_FRAME:
                raise ConnectionError(f"the peer's streams take only {value} bytes")

    def _fail(self, stream: int, error: str, ended: list[Ended]) -> None:
        call = self._live.pop(stream, None)
        if call is not None:
            ended.append(Ended(call[0], call[1], b"", error))
