"""A closed-loop gRPC load over plain sockets: about 4 µs of CPU a call, every answer compared byte by byte.

A generator must cost less than what it measures. This one speaks just enough HTTP/2: frames are made ahead, header
fields are sent once and then named by their index, answers are compared without decoding their header fields. That is
sound: a body that is byte by byte the right one comes with no status but OK.
"""

from __future__ import annotations

import array
import select
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.generator.connection import dial

PATH = "/inference.GRPCInferenceService/ModelInfer"

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">HBBBI")  # length (2 + 1 bytes), type, flags, stream (RFC 9113 §4.1)
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_CANCEL = 8
_INITIAL_WINDOW_SIZE = 4
_WINDOW = (1 << 31) - 1
_DEFAULT_WINDOW = 65535
_TOP_UP = 1 << 30  # bytes received before the connection's window is opened again
_READ = 1 << 18


class LoadError(Exception):
    """The peer said or did what makes a measurement void."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request's message after its prefix, and the answer's, byte by byte."""

    body: bytes
    answer: bytes


@dataclass(slots=True)
class Result:
    """What a load saw."""

    calls: int = 0  # with the right answer
    wrong: int = 0
    seconds: float = 0.0
    latencies: array.array[float] = field(default_factory=lambda: array.array("d"))

    def quantile(self, share: float) -> float:
        """Seconds from a call's sending to its end."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def framed(message: bytes) -> bytes:
    """A message after its gRPC prefix."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class Load:
    """Calls over several connections; `keep` may be called again and again."""

    def __init__(
        self,
        address: str,
        exchanges: Sequence[Exchange],
        connections: int = 1,
        fields: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Connect; `fields` are further headers of each call."""
        self._lines = [Line(address, exchanges, number, fields) for number in range(connections)]
        self._poll = select.epoll()
        self._by_number = {}
        for line in self._lines:
            self._by_number[line.sock.fileno()] = line
            self._poll.register(line.sock.fileno(), select.EPOLLIN)

    def keep(self, in_flight: int, *, seconds: float = 1e9, calls: int = 1 << 60) -> Result:
        """So many calls in flight until so long has passed or so many were sent; all have ended afterwards."""
        result = Result()
        begin = time.perf_counter()
        end, left = begin + seconds, calls
        shares = [
            in_flight // len(self._lines) + (number < in_flight % len(self._lines))
            for number in range(len(self._lines))
        ]
        for line, share in zip(self._lines, shares, strict=True):
            left -= line.begin(min(share, left))
        while any(line.open for line in self._lines):
            for number, _ in self._poll.poll(10.0) or _stalled():
                line = self._by_number[number]
                ended = line.read(result)
                if ended and left > 0 and time.perf_counter() < end:
                    left -= line.begin(min(ended, left))
        result.seconds = time.perf_counter() - begin
        return result

    def close(self) -> None:
        """Disconnect."""
        self._poll.close()
        for line in self._lines:
            line.sock.close()


class Line:
    """One connection: its streams, its windows, what it has read of a frame."""

    def __init__(
        self,
        address: str,
        exchanges: Sequence[Exchange],
        shift: int,
        fields: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.sock = dial(address)
        self.open: dict[int, tuple[int, float]] = {}  # stream: which exchange, since when
        self._bodies = [exchange.body for exchange in exchanges]
        self._answers = [exchange.answer for exchange in exchanges]
        self._answer: dict[int, bytes] = {}  # pieces of answers that are not whole
        self._sent = shift * 7  # connections don't all begin with the same request
        self._stream = 1
        self._window = _DEFAULT_WINDOW
        self._received = 0
        self._rest = b""
        self._later = 0  # calls that wait for the window
        settings = struct.pack(">HI", _INITIAL_WINDOW_SIZE, _WINDOW)
        self.sock.sendall(
            _PREFACE + _frame(_SETTINGS, 0, 0, settings) + _window_update(_WINDOW - _DEFAULT_WINDOW)
        )
        self._block, self._next_block = _blocks((*_FIELDS, *fields))

    @property
    def next_stream(self) -> int:
        """Of the next call; each takes two more than the one before."""
        return self._stream

    def begin(self, count: int) -> int:
        """Send so many calls, in one write; the number that was taken."""
        now, out, bodies = time.perf_counter(), [], self._bodies
        for sent in range(count):
            number = self._sent % len(bodies)
            body = bodies[number]
            if len(body) > self._window:
                self._later += count - sent
                break
            self._window -= len(body)
            self._sent += 1
            stream, self._stream = self._stream, self._stream + 2
            block = self._block
            out.append(
                _HEAD.pack(len(block) >> 8, len(block) & 255, _HEADERS, _END_HEADERS, stream)
            )
            out.append(block)
            size = len(body)
            out.append(_HEAD.pack(size >> 8, size & 255, _DATA, _END_STREAM, stream))
            out.append(body)
            self._block = self._next_block
            self.open[stream] = (number, now)
        self.sock.sendall(b"".join(out))
        return count

    def cancel(self, streams: Sequence[int]) -> int:
        """Reset those of them that are open; the number of them."""
        still = [stream for stream in streams if self.open.pop(stream, None) is not None]
        for stream in still:
            self._answer.pop(stream, None)
        frames = [_frame(_RESET, 0, stream, _CANCEL.to_bytes(4, "big")) for stream in still]
        self.sock.sendall(b"".join(frames))
        return len(still)

    def read(self, result: Result) -> int:
        """Take what has come; the number of calls that ended."""
        data = self.sock.recv(_READ)
        if not data:
            raise LoadError("the peer closed the connection")
        if self._rest:
            data = self._rest + data
        now, place, ended, end = time.perf_counter(), 0, 0, len(data)
        while end - place >= 9:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, place)
            stop = place + 9 + (high << 8 | low)
            if stop > end:
                break
            if kind == _DATA:
                self._take(stream, data[place + 9 : stop])
            elif kind == _WINDOW_UPDATE:
                if not stream:  # no body is larger than the window of its stream
                    self._widen(data[place + 9 : stop])
            elif kind != _HEADERS:
                self._control(kind, flags, data[place + 9 : stop])
            if flags & _END_STREAM and kind <= _HEADERS and stream in self.open:
                ended += 1
                self._end(stream, now, result)
            place = stop
        self._rest = data[place:]
        return ended

    def _take(self, stream: int, piece: bytes) -> None:
        self._received += len(piece)
        if stream not in self.open:  # cancelled
            return
        known = self._answer
        known[stream] = known[stream] + piece if stream in known else piece

    def _widen(self, payload: bytes) -> None:
        self._window += int.from_bytes(payload, "big") & _WINDOW
        later, self._later = self._later, 0
        if later:
            self.begin(later)

    def _end(self, stream: int, now: float, result: Result) -> None:
        number, since = self.open.pop(stream)
        if self._answer.pop(stream, None) == self._answers[number]:
            result.calls += 1
        else:
            result.wrong += 1
        result.latencies.append(now - since)

    def _control(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self.sock.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.sock.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind in (_GOAWAY, _RESET):
            raise LoadError(f"the peer sent {'GOAWAY' if kind == _GOAWAY else 'RST_STREAM'}")
        if self._received > _TOP_UP:
            self.sock.sendall(_window_update(self._received))
            self._received = 0


def _stalled() -> list[tuple[int, int]]:
    raise LoadError("nothing came for 10 s")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 255, kind, flags, stream) + payload


def _window_update(amount: int) -> bytes:
    return _frame(_WINDOW_UPDATE, 0, 0, amount.to_bytes(4, "big"))


# Header fields (RFC 7541): the static table's by number, ours once as "literal with incremental indexing" (0x40) and
# then by their number in the dynamic table, whose newest entry is 62.
_STATIC = b"\x83\x86"  # :method POST, :scheme http
_FIELDS = (
    (":path", PATH),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("grpc-timeout", "10S"),
)


def _blocks(fields: Sequence[tuple[str, str]]) -> tuple[bytes, bytes]:
    """Of the first call and of those after it."""
    text = [b"\x40" + _text(name) + _text(value) for name, value in fields]
    numbers = bytes(0x80 | (62 + n) for n in reversed(range(len(fields))))
    return _STATIC + b"".join(text), _STATIC + numbers


def _text(value: str) -> bytes:
    """With its length, of which 7 bits are in the first byte (RFC 7541, 5.1)."""
    rest = len(value) - 127
    if rest < 0:
        return bytes([len(value)]) + value.encode()
    length = [127]
    while rest > 127:
        length.append(128 | rest & 127)
        rest >>= 7
    return bytes([*length, rest]) + value.encode()
