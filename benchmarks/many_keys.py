"""A closed-loop load in which each request has a path and an API key of its own.

`h2_load` sends the same few requests again and again; here header fields are new each time, and answers are told apart
by their status.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

import ngh2

from benchmarks.generator.connection import dial, received
from benchmarks.h2_load import framed

_FIELDS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)
_WINDOW = 1 << 30
_SECONDS = 120.0  # without any answer


@dataclass(frozen=True, slots=True)
class Shot:
    """One request."""

    path: bytes
    key: bytes
    message: bytes


class KeyedLoad:
    """Calls over connections that are made anew for each `keep`: enough of them that each thread of Envoy gets some."""

    def __init__(self, address: str, connections: int = 8) -> None:
        """Assign only."""
        self._address = address
        self._connections = connections

    def keep(self, shots: Iterable[Shot], in_flight: int) -> Counter[str]:
        """All of them, so many at once on each connection; how many ended with each gRPC status."""
        waiting = iter(shots)
        ended: Counter[str] = Counter()
        with ExitStack() as stack:
            lines = [
                _Line(stack.enter_context(dial(self._address)), ended)
                for _ in range(self._connections)
            ]
            while sum(line.turn(waiting, in_flight) for line in lines):
                pass
        return ended


class _Line:
    """One connection."""

    def __init__(self, sock: socket.socket, ended: Counter[str]) -> None:
        sock.settimeout(_SECONDS)
        self._sock = sock
        self._connection = ngh2.Connection(ngh2.Role.CLIENT)
        self._connection.initiate_connection({ngh2.Setting.INITIAL_WINDOW_SIZE: _WINDOW})
        self._connection.set_local_window_size(_WINDOW)
        self._open = 0
        self._ended = ended

    def turn(self, waiting: Iterator[Shot], in_flight: int) -> bool:
        """Send as many as may be open, read once; whether there was anything to do."""
        for shot in islice(waiting, in_flight - self._open):
            self._send(shot)
        is_busy = self._open > 0
        self._sock.sendall(self._connection.data_to_send())
        if is_busy:
            self._connection.receive_data(received(self._sock))
            self._take()
        return is_busy

    def _send(self, shot: Shot) -> None:
        key = (b"authorization", b"Bearer " + shot.key)
        stream = self._connection.send_request(((b":path", shot.path), *_FIELDS, key))
        self._connection.send_data(stream, framed(shot.message), end_stream=True)
        self._open += 1

    def _take(self) -> None:
        for event in self._connection.events():
            if isinstance(event, ngh2.ResponseReceived | ngh2.TrailersReceived):
                said = dict(event.headers)
                status = said.get(b"grpc-status")
                if status is not None:
                    self._ended[status.decode()] += 1
                elif isinstance(event, ngh2.ResponseReceived) and event.end_stream:
                    self._ended[f"HTTP {said.get(b':status', b'?').decode()}"] += 1
            elif isinstance(event, ngh2.StreamClosed):
                self._open -= 1
