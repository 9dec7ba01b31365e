"""One call on a front connection: from its headers to its status."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from services.rpc.errors import (
    CancelledError,
    DeadlineExceededError,
    InferplaneError,
    ResourceExhaustedError,
)
from services.worker.domain.call_head import CallHead, Headers
from services.worker.domain.grpc_message import PREFIX_BYTES, SMALL, MessageReader, prefix

if TYPE_CHECKING:
    from services.worker.drivers.front_connection import FrontConnection

_BEGIN: Headers = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity"),
)
_OK: Headers = ((b"grpc-status", b"0"),)
# Bytes of one call's answers that wait for the peer; beyond, nothing more should be written or read.
_MOST_UNSENT = 1024 * 1024


class FrontCall:
    """Call of `ports.call`; the connection holds it while it runs."""

    __slots__ = (
        "_connection",
        "_stream_id",
        "arrived",
        "begun",
        "deadline",
        "head",
        "headers",
        "is_over",
        "on_drained",
        "on_gone",
        "reader",
        "request_id",
        "started",
    )

    def __init__(
        self,
        connection: FrontConnection,
        stream_id: int,
        head: CallHead,
        headers: Headers,
        timeout: float | None,
    ) -> None:
        """Assign only; a timeout counts from now."""
        self._connection = connection
        self._stream_id = stream_id
        self.head = head
        self.headers = headers
        self.request_id: bytes | None = None
        self.arrived = arrived = connection.now
        self.deadline = None if timeout is None else arrived + timeout
        self.on_gone: Callable[[InferplaneError], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.reader: MessageReader | None = None  # while the message comes in pieces
        self.begun = False  # the message is whole and the method has it
        self.started = False  # headers were sent
        self.is_over = False

    def reply(self, message: bytes, initial: Headers = (), trailing: Headers = ()) -> None:
        """The one answer of a unary call."""
        if initial or trailing:
            self._answer(prefix(len(message)) + message, (*_BEGIN, *initial), (*_OK, *trailing))
        else:
            self._answer(prefix(len(message)) + message)

    def reply_framed(self, framed: bytes) -> None:
        """`reply` with a message that has its prefix, and no metadata."""
        self._answer(framed)

    def _answer(self, framed: bytes, headers: Headers = _BEGIN, trailers: Headers = _OK) -> None:
        if self.is_over:
            return
        connection = self._connection
        if connection.is_paused or len(framed) > SMALL:
            refusal = connection.refusal(len(framed) - PREFIX_BYTES)
            if refusal is not None:
                self.fail(refusal)
                return
        connection.codec.answer(self._stream_id, headers, framed, trailers)
        self._end()

    def fail(self, error: InferplaneError) -> None:
        """End with the error's status."""
        if not self.is_over:
            self.finish(self._connection.status_of(error))

    def start(self, initial: Headers = ()) -> None:
        """Send headers, once."""
        if not self.is_over and not self.started:
            self.started = True
            self._connection.codec.send_headers(self._stream_id, (*_BEGIN, *initial))
            self._connection.touch()

    def write(self, message: bytes) -> None:
        """One of several messages."""
        if self.is_over:
            return
        refusal = self._connection.refusal(len(message))
        if refusal is not None:
            self.fail(refusal)
            return
        self._connection.codec.send_data(self._stream_id, prefix(len(message)) + message)
        self._connection.touch()

    @property
    def is_clogged(self) -> bool:
        """Whether the peer does not read its answers; `on_drained` tells when it does again."""
        if self.is_over or self._connection.codec.unsent_of(self._stream_id) <= _MOST_UNSENT:
            return False
        self._connection.clogged.add(self)
        return True

    def look_again(self) -> None:
        """Some of the connection's bytes have left: are these among them?"""
        if self.is_over or not self.is_clogged:
            self._connection.clogged.discard(self)
            if not self.is_over:
                self._tell_drained()

    def _tell_drained(self) -> None:
        told, self.on_drained = self.on_drained, None
        if told is not None:
            told()

    def finish(self, trailers: Headers) -> None:
        """End with a status."""
        if self.is_over:
            return
        codec = self._connection.codec
        if self.started:
            codec.send_trailers(self._stream_id, trailers)
        else:
            codec.send_headers(self._stream_id, (*_BEGIN, *trailers), end=True)
        self._end()

    def refuse(self, status: bytes) -> None:
        """End what is no gRPC call in HTTP's words."""
        self._connection.codec.send_headers(self._stream_id, ((b":status", status),), end=True)
        self._end()

    def leave(self, why: InferplaneError | None = None) -> None:
        """Nobody waits any more: tell the method, send nothing."""
        self.is_over = True
        self._release()
        told, self.on_gone = self.on_gone, None
        if told is not None:
            told(why or CancelledError("the caller has gone"))

    def expire(self) -> None:
        """The deadline has passed: tell the method, and the caller if it still listens."""
        why = DeadlineExceededError("the deadline passed before there was an answer")
        told, self.on_gone = self.on_gone, None
        self.fail(why)
        if told is not None:
            told(why)

    def _end(self) -> None:
        self.is_over = True
        self.on_gone = None
        self._release()
        self._connection.ended(self._stream_id, whole=self.begun)

    def _release(self) -> None:
        if self._connection.clogged:
            self._connection.clogged.discard(self)
        if self.reader is not None:
            self.reader.release()
            self.reader = None


def unread(waiting: int, size: int, limit: int) -> ResourceExhaustedError:
    """The peer asks but does not read."""
    return ResourceExhaustedError(
        f"{waiting} bytes of answers on this connection wait to be read; {size} more would exceed the {limit} allowed",
        reason="ANSWERS_NOT_READ",
        metadata={"waiting": str(waiting), "size": str(size), "limit": str(limit)},
        retry_after=0.1,
    )
