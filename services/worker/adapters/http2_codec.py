"""HTTP/2 by ngh2, a binding of libnghttp2: the only place that knows it.

Ten calls are used: initiate_connection, set_local_window_size, receive_data, events, data_to_send, send_response,
send_data, send_trailers, reset_stream, queued_body_size; and send_goaway for the end.
"""

from typing import Any

import ngh2

from services.worker.domain.call_head import Headers
from services.worker.ports.http2 import Http2Error, StreamSink

_UNLIMITED = (1 << 31, 1 << 31)
_CONFIGURATION = ngh2.Configuration(
    # Envoy puts the cancels of all clients on one connection; the default of 1,000 at once and 33 a second would end it
    # for everybody. Only Envoy and this user's own processes can connect, so nothing is opened to strangers.
    stream_reset_rate_limit=_UNLIMITED,
    glitch_rate_limit=_UNLIMITED,
    # Beyond these the codec ends the connection with all calls on it, so they lie well above what Envoy lets pass
    # (60 KiB, 100 fields); `call_head` refuses single calls before.
    max_inbound_header_list_size=256 * 1024,
    max_inbound_header_count=1024,
)
_STREAM_WINDOW = 4 * 1024 * 1024
_SETTINGS = {
    ngh2.Setting.MAX_CONCURRENT_STREAMS: 1024,
    ngh2.Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
    ngh2.Setting.MAX_HEADER_LIST_SIZE: 256 * 1024,
}
_CONNECTION_WINDOW = 32 * 1024 * 1024

_RequestReceived, _DataReceived = ngh2.RequestReceived, ngh2.DataReceived
_StreamClosed, _TrailersReceived = ngh2.StreamClosed, ngh2.TrailersReceived
_Ngh2Error = ngh2.NGH2Error


class Ngh2Codec:
    """Codec of one server connection."""

    def __init__(self, sink: StreamSink) -> None:
        """Begin the connection: SETTINGS wait in `output`."""
        self._sink = sink
        connection = ngh2.Connection(ngh2.Role.SERVER, _CONFIGURATION)
        connection.initiate_connection(_SETTINGS)
        connection.set_local_window_size(_CONNECTION_WINDOW)
        self._connection = connection
        # Looked up once: each is called for every request.
        self._receive = connection.receive_data
        self._events = connection.events
        self._respond = connection.send_response
        self._data = connection.send_data
        self._trailers = connection.send_trailers

    def receive(self, data: bytes) -> None:
        """Take bytes of the peer and tell the sink what they mean."""
        try:
            self._receive(data)
        except ngh2.NGH2Error as error:
            raise Http2Error(str(error)) from error
        finally:  # what came before the fault counts
            self._tell()

    def _tell(self) -> None:
        sink = self._sink
        opened, received, gone = sink.opened, sink.received, sink.gone
        event: Any
        for event in self._events():  # three of them for each call
            kind = type(event)
            if kind is _RequestReceived:
                opened(event.stream_id, event.headers, ended=event.end_stream)
            elif kind is _DataReceived:
                received(event.stream_id, event.data, ended=event.end_stream)
            elif kind is _StreamClosed:
                gone(event.stream_id)
            elif kind is _TrailersReceived:
                received(event.stream_id, b"", ended=True)

    def answer(self, stream_id: int, headers: Headers, data: bytes, trailers: Headers) -> None:
        """All of an answer at once."""
        try:
            self._respond(stream_id, headers)
            self._data(stream_id, data)
            self._trailers(stream_id, trailers)
        except _Ngh2Error:  # the stream or the connection is gone; the sink learns it in order
            return

    def send_headers(self, stream_id: int, headers: Headers, *, end: bool = False) -> None:
        """Begin an answer."""
        try:
            self._respond(stream_id, headers, end_stream=end)
        except ngh2.NGH2Error:  # the stream or the connection is gone; the sink learns it in order
            return

    def send_data(self, stream_id: int, data: bytes) -> None:
        """Go on with an answer."""
        try:
            self._data(stream_id, data)
        except ngh2.NGH2Error:
            return

    def send_trailers(self, stream_id: int, trailers: Headers) -> None:
        """End an answer."""
        try:
            self._trailers(stream_id, trailers)
        except ngh2.NGH2Error:
            return

    def reset(self, stream_id: int) -> None:
        """End a stream both ways without an error."""
        try:
            self._connection.reset_stream(stream_id, ngh2.ErrorCode.NO_ERROR)
        except ngh2.NGH2Error:
            return

    def goaway(self) -> None:
        """Take no new streams."""
        try:
            self._connection.send_goaway()
        except ngh2.NGH2Error:
            return

    def output(self, amount: int) -> bytes:
        """Up to so many bytes for the peer."""
        try:
            return self._connection.data_to_send(amount)
        except ngh2.NGH2Error as error:
            raise Http2Error(str(error)) from error

    def unsent(self) -> int:
        """Bytes of bodies that wait."""
        return self._connection.queued_body_size()

    def unsent_of(self, stream_id: int) -> int:
        """Those of one stream."""
        try:
            return self._connection.queued_body_size(stream_id)
        except ngh2.NGH2Error:
            return 0

    def pause(self, stream_id: int) -> None:
        """Without a window of its own the stream gets no updates; those of the connection go on."""
        self._set_window(stream_id, 0)

    def resume(self, stream_id: int) -> None:
        """What was taken meanwhile is given back at once."""
        self._set_window(stream_id, _STREAM_WINDOW)

    def _set_window(self, stream_id: int, size: int) -> None:
        try:
            self._connection.set_local_window_size(size, stream_id=stream_id)
        except ngh2.NGH2Error:
            return

    @property
    def is_over(self) -> bool:
        """Whether neither side has anything to say any more."""
        return not (self._connection.want_read or self._connection.want_write)
