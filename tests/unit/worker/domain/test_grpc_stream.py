"""Messages of a stream, from any pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.errors import (
    InferplaneError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnimplementedError,
)
from services.worker.domain.grpc_message import FRAMING_BYTES, SMALL, ByteBudget, prefix
from services.worker.domain.grpc_stream import StreamReader

LIMIT = 1 << 20


def reader(budget: int = 4 * LIMIT) -> tuple[StreamReader, ByteBudget]:
    bytes_ = ByteBudget(budget)
    return StreamReader(LIMIT, bytes_), bytes_


def framed(message: bytes) -> bytes:
    return prefix(len(message)) + message


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_any_pieces_give_the_same_messages(messages: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere, taken at any time: the messages, in order, and nothing is left."""
    whole = b"".join(framed(m) for m in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    stream, budget = reader()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        stream.feed(whole[start:end])
        while data.draw(st.booleans()) and (message := stream.next()) is not None:
            found.append(message)
    while (message := stream.next()) is not None:
        found.append(message)
    assert found == messages
    stream.finish()
    assert budget.used == 0


def test_what_waits_is_charged_and_given_back() -> None:
    """Little is free; a large message is charged as a whole as soon as its prefix says so."""
    stream, budget = reader()
    stream.feed(framed(b"x" * 100))
    assert budget.used == 0
    assert stream.next() == b"x" * 100
    stream.feed(prefix(LIMIT))
    assert stream.next() is None
    assert budget.used == LIMIT
    stream.feed(b"y" * LIMIT)
    assert stream.next() == b"y" * LIMIT
    assert budget.used == 0
    stream.feed(framed(b"z" * SMALL) * 3)
    assert budget.used > 3 * SMALL
    stream.release()
    stream.release()
    assert budget.used == 0


@pytest.mark.parametrize(
    ("data", "budget", "kind"),
    [
        pytest.param(prefix(LIMIT + FRAMING_BYTES + 1), LIMIT, ResourceExhaustedError, id="large"),
        pytest.param(prefix(LIMIT), LIMIT // 2, ResourceExhaustedError, id="no-room-in-the-budget"),
        pytest.param(b"\1\0\0\0\1x", LIMIT, UnimplementedError, id="compressed"),
        pytest.param(b"\7\0\0\0\1x", LIMIT, InvalidArgumentError, id="no-such-flag"),
    ],
)
def test_refused_by_its_prefix(data: bytes, budget: int, kind: type[InferplaneError]) -> None:
    """Before anything of the message has to come."""
    stream, _ = reader(budget)
    stream.feed(data)
    with pytest.raises(kind):
        stream.next()


def test_a_message_cut_off_is_refused() -> None:
    """The stream may end between messages only."""
    stream, _ = reader()
    stream.feed(framed(b"abc")[:-1])
    assert stream.next() is None
    with pytest.raises(InvalidArgumentError, match="ends within a message"):
        stream.finish()
