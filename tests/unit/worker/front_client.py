"""A real HTTP/2 client over ngh2, without sockets, and a transport that it reads from."""

import asyncio
import base64
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

import ngh2
from google.rpc import error_details_pb2, status_pb2

from services.worker.domain.call_head import Headers

POST: Headers = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)


def framed(message: bytes) -> bytes:
    """A message after its prefix."""
    return b"\0" + len(message).to_bytes(4, "big") + message


@dataclass
class Answer:
    """What came back on one stream."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    data: bytes = b""
    closed: int | None = None  # error code of the end

    @property
    def status(self) -> int:
        """`grpc-status`; -1: none."""
        return int(self.headers.get(b"grpc-status", b"-1"))

    @property
    def text(self) -> str:
        """`grpc-message`."""
        return unquote_to_bytes(self.headers.get(b"grpc-message", b"")).decode()

    @property
    def message(self) -> bytes:
        """The one message."""
        assert self.data == framed(self.data[5:])
        return self.data[5:]

    @property
    def reason(self) -> str:
        """Of the error's `ErrorInfo`."""
        encoded = self.headers[b"grpc-status-details-bin"]
        status = status_pb2.Status.FromString(base64.b64decode(encoded + b"=="))
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info)
        return str(info.reason)


class Peer:
    """The client's side of a connection."""

    def __init__(self, settings: dict[int, int] | None = None, *, auto: bool = True) -> None:
        self.session = ngh2.Connection(
            ngh2.Role.CLIENT, ngh2.Configuration(auto_window_update=auto)
        )
        self.session.initiate_connection(settings or {})
        self.answers: dict[int, Answer] = {}
        self.goaway: int | None = None

    def request(self, path: bytes, body: bytes | None, *more: tuple[bytes, bytes]) -> int:
        """Begin a call; None: the body follows by `session.send_data`."""
        headers = (*POST, (b":path", path), *more)
        ordered = sorted(headers, key=lambda h: not h[0].startswith(b":"))
        stream = self.session.send_request(ordered, end_stream=body == b"")
        if body:
            self.session.send_data(stream, body, end_stream=True)
        self.answers[stream] = Answer()
        return stream

    def take(self, data: bytes) -> None:
        """Bytes of the server."""
        self.session.receive_data(data)
        for event in self.session.events():
            if isinstance(event, ngh2.ResponseReceived | ngh2.TrailersReceived):
                self.answers[event.stream_id].headers.update(event.headers)
            elif isinstance(event, ngh2.DataReceived):
                self.answers[event.stream_id].data += event.data
            elif isinstance(event, ngh2.StreamClosed):
                self.answers[event.stream_id].closed = event.error_code
            elif isinstance(event, ngh2.GoAwayReceived):
                self.goaway = event.error_code


class PipeTransport(asyncio.Transport):
    """A transport whose other end is a list of bytes; it can be full."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        """All that was written since the last time."""
        data = b"".join(self.written)
        self.written.clear()
        return data
