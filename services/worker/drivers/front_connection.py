"""One connection of the front: bytes of a socket to calls, answers of calls to bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import structlog

from services.rpc.errors import InferplaneError, UnimplementedError
from services.worker.domain.call_head import CallHead, Headers, Heads, NotGrpcError
from services.worker.domain.grpc_message import (
    PREFIX_BYTES,
    SMALL,
    ByteBudget,
    MessageReader,
    read_prefix,
)
from services.worker.drivers.front_call import FrontCall, unread
from services.worker.drivers.front_stream import FrontStreamCall
from services.worker.ports.call import Method, StreamMethod
from services.worker.ports.http2 import Codec, Http2Error, MakeCodec

_log = structlog.get_logger(__name__)

_PIECE = 256 * 1024  # bytes taken from the codec at once
_PEER = struct.Struct("3i")  # pid, uid, gid (unix(7), SO_PEERCRED)
_HEALTH = b"/grpc.health.v1.Health/"  # all that a peer may call who may only ask
_UNKNOWN = CallHead(b"", None, None, "")


def _nobody(_certificate: Mapping[str, Any]) -> bool:
    return False


@dataclass(slots=True, kw_only=True)
class FrontDesk:
    """What all connections of a front share."""

    methods: Mapping[bytes, Method]  # by path
    make_codec: MakeCodec
    status_of: Callable[[InferplaneError], Headers]
    max_message_bytes: int
    arriving: ByteBudget
    max_unsent_bytes: int  # of answers, per connection
    users: frozenset[int]  # who may connect by a unix socket
    admits: Callable[[Mapping[str, Any]], bool]  # whether the holder of a certificate may connect
    deadlines_set: Callable[[], None]  # a call has a deadline: look at it from time to time
    touched: Callable[[FrontConnection], None]  # it has something to send
    asks: Callable[[Mapping[str, Any]], bool] = _nobody  # whether he may at least ask for health
    streams: Mapping[bytes, StreamMethod] = field(default_factory=dict)  # by path
    heads: Heads = field(default_factory=Heads)
    connections: set[FrontConnection] = field(default_factory=set)
    emptied: asyncio.Event = field(default_factory=asyncio.Event)  # set when a last call ended


class FrontConnection(asyncio.Protocol):
    """StreamSink of its codec; holds the calls that run."""

    def __init__(self, desk: FrontDesk) -> None:
        """Assign only; `connection_made` begins."""
        self.calls: dict[int, FrontCall] = {}
        self.clogged: set[FrontCall] = set()  # they wait for the peer to read
        self.now = 0.0  # when the bytes came that are being read, of the monotonic clock
        self.is_paused = False  # the socket's buffer is full
        self._desk = desk
        self._read_head = desk.heads.read
        self._methods = desk.methods
        self._may_only_ask = False
        self.max_message_bytes = desk.max_message_bytes
        self.arriving = desk.arriving
        self.codec: Codec = desk.make_codec(self)
        self.status_of = desk.status_of
        self.is_dirty = False  # the desk knows that there is something to send
        self._cut: list[int] = []  # streams to reset once their status is out

    # What the socket tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer came; strangers are sent away."""
        self._transport = cast(asyncio.Transport, transport)
        if not self._is_welcome():
            self._transport.abort()
            return
        self._desk.connections.add(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer."""
        self.now = time.monotonic()
        try:
            self.codec.receive(data)
        except Http2Error as error:
            _log.warning("front connection broken by its peer", error=str(error))
            self.close()
            return
        self.flush()

    def pause_writing(self) -> None:
        """The socket's buffer is full: what comes waits in the codec."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """There is room again."""
        self.is_paused = False
        self.flush()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The peer has gone, and with it whoever waited."""
        self._desk.connections.discard(self)
        calls = list(self.calls.values())
        self.calls.clear()
        for call in calls:
            call.leave()
        self._desk.emptied.set()

    # What the codec tells

    def opened(self, stream_id: int, headers: Headers, *, ended: bool) -> None:
        """A request began."""
        try:
            head, timeout, request_id = self._read_head(headers)
            if head.path not in self._methods:
                self._open_other(stream_id, head, headers, timeout, ended=ended)
                return
        except NotGrpcError as error:
            self._refused(stream_id).refuse(error.status)
            return
        except InferplaneError as error:
            self._refused(stream_id).fail(error)
            return
        call = FrontCall(self, stream_id, head, headers, timeout)
        call.request_id = request_id
        self.calls[stream_id] = call
        if timeout is not None:
            self._desk.deadlines_set()
        if ended:
            self._whole(call, b"")

    def received(self, stream_id: int, data: bytes, *, ended: bool) -> None:
        """A piece of a request."""
        call = self.calls.get(stream_id)
        if call is None or call.begun:  # refused already, or a stream
            if type(call) is FrontStreamCall:
                call.feed(data, ended=ended)
            return
        try:
            if ended and call.reader is None and PREFIX_BYTES <= len(data) <= SMALL:
                size = read_prefix(data, self.max_message_bytes)
                if size == len(data) - PREFIX_BYTES:
                    call.begun = True
                    self._methods[call.head.path](call, data[PREFIX_BYTES:])
                    return
            self._piece(call, data, ended=ended)
        except InferplaneError as error:
            call.begun = ended
            call.fail(error)

    def gone(self, stream_id: int) -> None:
        """The peer reset it, or all is said."""
        call = self.calls.pop(stream_id, None)
        if call is not None:
            call.leave()
            if not self.calls:
                self._desk.emptied.set()

    # What calls tell

    def ended(self, stream_id: int, *, whole: bool) -> None:
        """A call has its status; `whole`: its request had come in full."""
        if self.calls.pop(stream_id, None) is not None and not self.calls:
            self._desk.emptied.set()
        if not whole:  # RFC 9113 §8.1: what is still on the way is not wanted
            self._cut.append(stream_id)
        if not self.is_dirty:
            self.is_dirty = True
            self._desk.touched(self)

    def touch(self) -> None:
        """Something is to be sent, soon and together with what else is."""
        if not self.is_dirty:
            self.is_dirty = True
            self._desk.touched(self)

    def refusal(self, size: int) -> InferplaneError | None:
        """Why an answer of that size can't be queued for a peer that does not read; None: it can."""
        if not self.is_paused and size <= SMALL:
            return None
        waiting, limit = self.codec.unsent(), self._desk.max_unsent_bytes
        return unread(waiting, size, limit) if waiting + size > limit else None

    # What the front does

    def flush(self) -> None:
        """Write all that may be sent now, in one piece if it is small."""
        self.is_dirty = False
        if self._transport.is_closing():
            return
        try:
            self._write_output()
            if self._cut and not self.is_paused:
                self._reset_cut()
                self._write_output()
        except Http2Error as error:
            _log.warning("front connection broken", error=str(error))
            self.close()
            return
        if self.codec.is_over:
            self.close()
        elif self.clogged:
            for call in list(self.clogged):
                call.look_again()

    def expire(self, now: float) -> None:
        """End calls whose deadline has passed."""
        for call in [
            c for c in self.calls.values() if c.deadline is not None and c.deadline <= now
        ]:
            call.expire()

    def goaway(self) -> None:
        """Take no new calls."""
        self.codec.goaway()
        self.flush()

    def close(self) -> None:
        """Close the socket; `connection_lost` follows."""
        self._transport.close()

    def abort(self) -> None:
        """Close it without a word; `connection_lost` follows."""
        self._transport.abort()

    def _reset_cut(self) -> None:
        """Of streams whose answers and status are out; a reset would lose what is not."""
        cut, self._cut = self._cut, []
        for stream_id in cut:
            if self.codec.unsent_of(stream_id):
                self._cut.append(stream_id)
            else:
                self.codec.reset(stream_id)

    def _write_output(self) -> None:
        output = self.codec.output
        while not self.is_paused:
            data = output(_PIECE)
            if not data:
                return
            self._transport.write(data)

    def _refused(self, stream_id: int) -> FrontCall:
        return FrontCall(self, stream_id, _UNKNOWN, (), None)

    def _piece(self, call: FrontCall, data: bytes, *, ended: bool) -> None:
        reader = call.reader
        if reader is None:
            reader = MessageReader(self._desk.max_message_bytes, self._desk.arriving)
            call.reader = reader
        if data:
            reader.feed(data)
        if ended:
            message = reader.message()
            call.reader = None
            self._begin(call, message)

    def _open_other(
        self,
        stream_id: int,
        head: CallHead,
        headers: Headers,
        timeout: float | None,
        *,
        ended: bool,
    ) -> None:
        """A call of many messages; any other is not served. Raises UnimplementedError."""
        method = None if self._may_only_ask else self._desk.streams.get(head.path)
        if method is None:
            shown = head.path[:256].decode("utf-8", "replace")
            raise UnimplementedError(
                f"{shown!r} is not served here", reason="UNKNOWN_METHOD", metadata={"method": shown}
            )
        call = FrontStreamCall(self, stream_id, head, headers, timeout)
        self.calls[stream_id] = call
        if timeout is not None:
            self._desk.deadlines_set()
        call.open(method)
        if ended:
            call.feed(b"", ended=True)

    def _whole(self, call: FrontCall, data: bytes) -> None:
        try:
            self._piece(call, data, ended=True)
        except InferplaneError as error:
            call.begun = True
            call.fail(error)

    def _begin(self, call: FrontCall, message: bytes) -> None:
        call.begun = True
        self._methods[call.head.path](call, message)

    def _is_welcome(self) -> bool:
        certificate = self._transport.get_extra_info("peercert")
        if certificate is not None:
            return self._desk.admits(certificate) or self._is_let_ask(certificate)
        option = getattr(socket, "SO_PEERCRED", None)
        peer = self._transport.get_extra_info("socket")
        if option is None or peer is None:  # the socket's mode and folder alone guard it
            return True
        _, user, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, option, _PEER.size))
        if user in self._desk.users:
            return True
        _log.warning("front refused a stranger", user=user)
        return False

    def _is_let_ask(self, certificate: Mapping[str, Any]) -> bool:
        if not self._desk.asks(certificate):
            return False
        methods = self._desk.methods
        self._methods = {path: methods[path] for path in methods if path.startswith(_HEALTH)}
        self._may_only_ask = True
        return True
