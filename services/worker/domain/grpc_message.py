"""The one message of a unary gRPC request, put together from pieces: flag byte, 4-byte length, message."""

from dataclasses import dataclass

from services.rpc.errors import (
    InferplaneError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnimplementedError,
)

PREFIX_BYTES = 5
FRAMING_BYTES = 64 * 1024  # message limits are about payloads; names and shapes ride on top
SMALL = 64 * 1024  # messages up to this size are bounded by the number of streams alone


def prefix(size: int) -> bytes:
    """What precedes a message of that size, uncompressed."""
    return b"\0" + size.to_bytes(4, "big")


@dataclass(slots=True)
class ByteBudget:
    """Bytes that large messages may occupy while they arrive, over all connections together."""

    limit: int
    used: int = 0

    def fits(self, size: int) -> bool:
        """Whether so many bytes may be taken."""
        return self.used + size <= self.limit

    def take(self, size: int) -> None:
        """Occupy bytes; `give` them back."""
        self.used += size

    def give(self, size: int) -> None:
        """They are free again."""
        self.used -= size


class MessageReader:
    """Collects one message; refuses it as soon as its prefix says that it can't be taken."""

    __slots__ = ("_budget", "_missing", "_parts", "_prefix", "_taken", "max_bytes")

    def __init__(self, max_bytes: int, budget: ByteBudget) -> None:
        """Assign only.

        Args:
            max_bytes: largest payload; framing comes on top.
            budget: what large messages are charged to while they arrive.
        """
        self.max_bytes = max_bytes
        self._budget = budget
        self._prefix = b""
        self._parts: list[bytes] = []
        self._missing = 0
        self._taken = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece. Raises InferplaneError if the message is refused; feed nothing afterwards."""
        if len(self._prefix) < PREFIX_BYTES:
            cut = PREFIX_BYTES - len(self._prefix)
            self._prefix += data[:cut]
            if len(self._prefix) < PREFIX_BYTES:
                return
            data = data[cut:]
            self._begin()
        if len(data) > self._missing:
            raise _malformed("more than one message")
        if data:
            self._parts.append(data)
            self._missing -= len(data)

    def message(self) -> bytes:
        """The whole message, once the request has ended. Raises InvalidArgumentError."""
        if len(self._prefix) < PREFIX_BYTES:
            raise _malformed("no whole message")
        if self._missing:
            raise _malformed(f"a message that ends {self._missing} bytes early")
        parts, self._parts = self._parts, []
        self.release()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def release(self) -> None:
        """Give back what the budget lent; again is harmless."""
        taken, self._taken = self._taken, 0
        if taken:
            self._budget.give(taken)

    def _begin(self) -> None:
        size = read_prefix(self._prefix, self.max_bytes)
        if size > SMALL:
            if not self._budget.fits(size):
                raise _no_room(size, self._budget.limit)
            self._budget.take(size)
            self._taken = size
        self._missing = size


def read_prefix(data: bytes, max_bytes: int) -> int:
    """Size of the message that follows the first five bytes. Raises InferplaneError if it is refused."""
    if data[0]:
        raise _flagged(data[0])
    size = int.from_bytes(data[1:PREFIX_BYTES], "big")
    if size > max_bytes + FRAMING_BYTES:
        raise ResourceExhaustedError(
            f"the message has {size} bytes, more than the {max_bytes} a message may have;"
            " allowed: fewer rows per call",
            reason="MESSAGE_TOO_LARGE",
            metadata={"size": str(size), "limit": str(max_bytes)},
        )
    return size


def _flagged(flag: int) -> InferplaneError:
    if flag == 1:
        return UnimplementedError(
            "the message is compressed; allowed: uncompressed messages",
            reason="COMPRESSION_UNSUPPORTED",
        )
    return _malformed(f"compressed flag {flag}")


def _malformed(found: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the request has {found}; allowed: one message after its 5-byte prefix",
        reason="MALFORMED_MESSAGE",
        metadata={"found": found},
    )


def _no_room(size: int, limit: int) -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"messages that arrive occupy their {limit} bytes; one of {size} does not fit now",
        reason="TOO_MANY_BYTES_ARRIVE",
        metadata={"size": str(size), "limit": str(limit)},
        retry_after=0.1,
    )
