"""One call over the front, as methods see it."""

from collections.abc import Callable
from typing import Protocol

from services.rpc.errors import InferplaneError
from services.worker.domain.call_head import CallHead, Headers


class UnaryCall(Protocol):
    """A call with one answer. Ends once, by `reply` or `fail`; after the caller has gone they do nothing."""

    head: CallHead
    headers: Headers  # all as they came
    request_id: bytes | None  # as the edge says
    arrived: float  # of the monotonic clock
    deadline: float | None  # of the same
    on_gone: Callable[[InferplaneError], None] | None  # told when nobody waits any more, with why

    def reply(self, message: bytes, initial: Headers = (), trailing: Headers = ()) -> None:
        """The one answer of a unary call, with metadata."""
        ...

    def reply_framed(self, framed: bytes) -> None:
        """The same with a message that has its prefix already, and no metadata."""
        ...

    def fail(self, error: InferplaneError) -> None:
        """End with the error's status."""
        ...


class Call(UnaryCall, Protocol):
    """A call that may also have several answers, and then ends by `finish`."""

    is_over: bool  # it has its status, or nobody waits for it any more
    on_drained: Callable[[], None] | None  # told once, when a peer that read nothing reads again

    @property
    def is_clogged(self) -> bool:
        """Whether the peer does not read its answers; once it does again, `on_drained` is told."""
        ...

    def start(self, initial: Headers = ()) -> None:
        """Send the metadata that comes before messages."""
        ...

    def write(self, message: bytes) -> None:
        """One of several messages, after `start`."""
        ...

    def finish(self, trailers: Headers) -> None:
        """End with a status that is written out already."""
        ...


Method = Callable[[Call, bytes], None]  # begins the call with its message; never raises


class StreamCall(Call, Protocol):
    """A call whose request is many messages, of which its sink is told; `drained` is in place of `on_drained`."""

    def pause(self) -> None:
        """Take no more messages until `resume`; the peer is held back."""
        ...

    def resume(self) -> None:
        """Go on, first with what has come meanwhile."""
        ...


class MessageSink(Protocol):
    """What is told of a call's messages; never raises. `on_gone` tells when nobody is there any more."""

    def message(self, message: bytes) -> None:
        """The next one."""
        ...

    def ended(self) -> None:
        """The caller has sent its last message."""
        ...

    def drained(self) -> None:
        """The peer has read what it did not read before."""
        ...


StreamMethod = Callable[[StreamCall], MessageSink]  # begins the call; never raises
