"""HTTP/2 without sockets: what a connection asks of its codec, and what the codec tells it."""

from collections.abc import Callable
from typing import Protocol

from services.worker.domain.call_head import Headers


class Http2Error(Exception):
    """The peer broke the protocol, or a limit of it: the connection is of no use any more."""


class StreamSink(Protocol):
    """What the codec tells of; called inside `Codec.receive`, in the order of arrival."""

    def opened(self, stream_id: int, headers: Headers, *, ended: bool) -> None:
        """A request began; `ended`: nothing follows."""
        ...

    def received(self, stream_id: int, data: bytes, *, ended: bool) -> None:
        """A piece of a request's body; `ended`: the last one."""
        ...

    def gone(self, stream_id: int) -> None:
        """The stream is closed, by the peer or because both sides have ended."""
        ...


class Codec(Protocol):
    """One connection's state. What is sent on a stream that is gone is dropped in silence; `gone` tells of it."""

    def receive(self, data: bytes) -> None:
        """Take bytes of the peer and tell the sink what they mean. Raises Http2Error."""
        ...

    def answer(self, stream_id: int, headers: Headers, data: bytes, trailers: Headers) -> None:
        """All of an answer at once."""
        ...

    def send_headers(self, stream_id: int, headers: Headers, *, end: bool = False) -> None:
        """Begin an answer; `end`: it is the whole of it."""
        ...

    def send_data(self, stream_id: int, data: bytes) -> None:
        """Go on with an answer."""
        ...

    def send_trailers(self, stream_id: int, trailers: Headers) -> None:
        """End an answer."""
        ...

    def reset(self, stream_id: int) -> None:
        """End a stream both ways without an error; what was not yet taken by `output` is lost."""
        ...

    def goaway(self) -> None:
        """Take no new streams; those that run go on."""
        ...

    def output(self, amount: int) -> bytes:
        """Up to so many bytes for the peer; empty: nothing may be sent now. Raises Http2Error."""
        ...

    def unsent(self) -> int:
        """Bytes of bodies that wait for the peer to take them."""
        ...

    def unsent_of(self, stream_id: int) -> int:
        """Those of one stream; 0 if it is gone."""
        ...

    def pause(self, stream_id: int) -> None:
        """Give the peer no more room on this stream; what it has room for it may still send."""
        ...

    def resume(self, stream_id: int) -> None:
        """Give it room again."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether neither side has anything to say any more."""
        ...


MakeCodec = Callable[[StreamSink], Codec]
