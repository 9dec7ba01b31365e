"""One call over the front, as methods see it."""

from collections.abc import Callable
from typing import Protocol

from services.rpc.errors import InferplaneError
from services.worker.domain.call_head import CallHead, Headers


class Call(Protocol):
    """Ends once, by `reply`, `fail` or `finish`; after the caller has gone all of them do nothing."""

    head: CallHead
    deadline: float | None  # of the monotonic clock
    on_gone: Callable[[InferplaneError], None] | None  # told when nobody waits any more, with why

    def reply(self, message: bytes, initial: Headers = (), trailing: Headers = ()) -> None:
        """The one answer of a unary call, with metadata."""
        ...

    def fail(self, error: InferplaneError) -> None:
        """End with the error's status."""
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
