"""One call on a front connection whose request is many messages: handed over one by one, as long as asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.rpc.errors import InferplaneError
from services.worker.domain.call_head import CallHead, Headers
from services.worker.domain.grpc_stream import StreamReader
from services.worker.drivers.front_call import FrontCall
from services.worker.ports.call import MessageSink, StreamMethod

if TYPE_CHECKING:
    from services.worker.drivers.front_connection import FrontConnection


class FrontStreamCall(FrontCall):
    """StreamCall of `ports.call`.

    While paused the peer is given no room beyond what it has: it fills at most one window of HTTP/2's flow control,
    and other calls on the connection go on.
    """

    __slots__ = ("_ended", "_messages", "_paused", "_sink", "_told_end")

    def __init__(
        self,
        connection: FrontConnection,
        stream_id: int,
        head: CallHead,
        headers: Headers,
        timeout: float | None,
    ) -> None:
        """Assign only; `open` begins."""
        super().__init__(connection, stream_id, head, headers, timeout)
        self.begun = True  # its pieces are not those of one message
        # What waits is charged to the budget of what arrives.
        self._messages = StreamReader(connection.max_message_bytes, connection.arriving)
        self._sink: MessageSink | None = None
        self._paused = False
        self._ended = False  # the peer has said everything
        self._told_end = False  # and the sink knows

    def open(self, method: StreamMethod) -> None:
        """Let the method have it."""
        self._sink = method(self)

    def feed(self, data: bytes, *, ended: bool) -> None:
        """A piece of the request."""
        self._ended = self._ended or ended
        if self.is_over:
            return
        try:
            self._messages.feed(data)
            self._hand_over()
        except InferplaneError as error:
            self._break_off(error)

    def write(self, message: bytes) -> None:
        """One of several messages."""
        refusal = self._connection.refusal(len(message))
        if refusal is not None and not self.is_over:
            self._break_off(refusal)
            return
        super().write(message)

    def pause(self) -> None:
        """Take no more messages until `resume`."""
        if not self._paused and not self.is_over:
            self._paused = True
            self._connection.codec.pause(self._stream_id)

    def resume(self) -> None:
        """Go on, first with what has come meanwhile."""
        if not self._paused or self.is_over:
            return
        self._paused = False
        self._connection.codec.resume(self._stream_id)
        self._connection.touch()
        try:
            self._hand_over()
        except InferplaneError as error:
            self._break_off(error)

    def _tell_drained(self) -> None:
        if self._sink is not None:
            self._sink.drained()

    def _hand_over(self) -> None:
        assert self._sink is not None
        while not self._paused and not self.is_over:
            message = self._messages.next()
            if message is not None:
                self._sink.message(message)
                continue
            if self._ended and not self._told_end:
                self._messages.finish()
                self._told_end = True
                self._sink.ended()
            return

    def _break_off(self, error: InferplaneError) -> None:
        """The request can't be read on: tell both sides."""
        told, self.on_gone = self.on_gone, None
        self.fail(error)
        if told is not None:
            told(error)

    def _end(self) -> None:
        self.begun = self._ended  # otherwise the peer is told that nothing more is wanted
        super()._end()

    def _release(self) -> None:
        self._messages.release()
        super()._release()
