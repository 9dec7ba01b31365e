"""The messages of a streaming gRPC request, taken apart from pieces: flag byte, 4-byte length, message, and so on."""

from services.rpc.errors import InvalidArgumentError, ResourceExhaustedError
from services.worker.domain.grpc_message import (
    PREFIX_BYTES,
    SMALL,
    ByteBudget,
    read_prefix,
)


class StreamReader:
    """Holds what has come until somebody takes it, message by message; what it holds beyond a little is charged."""

    __slots__ = ("_budget", "_charged", "_data", "_size", "max_bytes")

    def __init__(self, max_bytes: int, budget: ByteBudget) -> None:
        """Assign only.

        Args:
            max_bytes: largest payload; framing comes on top.
            budget: what is held is charged to it, beyond SMALL.
        """
        self.max_bytes = max_bytes
        self._budget = budget
        self._data = bytearray()
        self._size: int | None = None  # of the first message, once its prefix is there
        self._charged = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece. Raises ResourceExhaustedError if there is no room; feed nothing afterwards."""
        self._data += data
        self._charge()

    def next(self) -> bytes | None:
        """The next whole message, if there is one. Raises InferplaneError if it is refused."""
        data = self._data
        if self._size is None:
            if len(data) < PREFIX_BYTES:
                return None
            self._size = read_prefix(bytes(data[:PREFIX_BYTES]), self.max_bytes)
            self._charge()
        end = PREFIX_BYTES + self._size
        if len(data) < end:
            return None
        with memoryview(data) as view:
            message = bytes(view[PREFIX_BYTES:end])
        del data[:end]
        self._size = None
        self._charge()
        return message

    def finish(self) -> None:
        """The request has ended and everything was taken. Raises InvalidArgumentError if a message is cut off."""
        if self._data:
            raise InvalidArgumentError(
                "the stream ends within a message; allowed: whole messages, each after its 5-byte prefix",
                reason="MALFORMED_MESSAGE",
                metadata={"left": str(len(self._data))},
            )

    def release(self) -> None:
        """Forget everything and give back what the budget lent; again is harmless."""
        self._data.clear()
        self._size = None
        self._charge()

    def _charge(self) -> None:
        held = max(len(self._data), self._size or 0)
        due = held if held > SMALL else 0
        more = due - self._charged
        if more > 0 and not self._budget.fits(more):
            raise ResourceExhaustedError(
                f"messages that arrive occupy their {self._budget.limit} bytes; {held} of this stream do not fit now",
                reason="TOO_MANY_BYTES_ARRIVE",
                metadata={"size": str(held), "limit": str(self._budget.limit)},
                retry_after=0.1,
            )
        if more > 0:
            self._budget.take(more)
        elif more < 0:
            self._budget.give(-more)
        self._charged = due
