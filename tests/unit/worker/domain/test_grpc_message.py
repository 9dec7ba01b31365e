"""One message from pieces, refused as early as can be."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.errors import (
    InferplaneError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnimplementedError,
)
from services.worker.domain.grpc_message import FRAMING_BYTES, SMALL, ByteBudget, MessageReader
from services.worker.domain.grpc_message import prefix as prefix_of

MAX = 1 << 20


def reader(budget: ByteBudget | None = None) -> MessageReader:
    return MessageReader(MAX, budget or ByteBudget(4 * MAX))


@given(st.binary(max_size=300), st.lists(st.integers(0, 305), max_size=8))
def test_however_it_is_cut_the_message_is_the_same(message: bytes, cuts: list[int]) -> None:
    """Pieces of any size, empty ones too."""
    data = prefix_of(len(message)) + message
    edges = sorted({0, len(data), *(c for c in cuts if c <= len(data))})
    made = reader()
    for start, end in itertools.pairwise(edges):
        made.feed(data[start:end])
        made.feed(b"")
    assert made.message() == message


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"\1\0\0\0\1x", UnimplementedError, "compressed"),
        (b"\2\0\0\0\1x", InvalidArgumentError, "compressed flag 2"),
        (b"\0\xff\xff\xff\xff", ResourceExhaustedError, str(MAX)),
        (b"\0\0\0\0\1xy", InvalidArgumentError, "more than one message"),
        (b"\0\0\0\0\2x", InvalidArgumentError, "1 bytes early"),
        (b"\0\0\0", InvalidArgumentError, "no whole message"),
        (b"", InvalidArgumentError, "no whole message"),
    ],
)
def test_what_is_no_message(data: bytes, kind: type[InferplaneError], words: str) -> None:
    """Each with its own words."""
    made = reader()

    def read() -> None:
        made.feed(data)
        made.message()

    with pytest.raises(kind, match=words):
        read()


def test_the_limit_is_about_payloads() -> None:
    """Framing rides on top; one byte more is refused by the prefix alone."""
    reader().feed(prefix_of(MAX + FRAMING_BYTES))
    with pytest.raises(ResourceExhaustedError):
        reader().feed(prefix_of(MAX + FRAMING_BYTES + 1))


def test_large_messages_share_a_budget() -> None:
    """What arrives is charged from its prefix on, small messages are not, and all is given back once."""
    budget = ByteBudget(MAX)
    first, second, small = reader(budget), reader(budget), reader(budget)
    first.feed(prefix_of(MAX))
    assert budget.used == MAX
    with pytest.raises(ResourceExhaustedError) as caught:
        second.feed(prefix_of(SMALL + 1))
    assert caught.value.retry_after
    small.feed(prefix_of(SMALL))
    first.feed(b"x" * MAX)
    assert len(first.message()) == MAX
    first.release()
    second.release()
    assert budget.used == 0


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_any_bytes_are_a_message_or_refused(pieces: list[bytes]) -> None:
    """Nothing else comes out, and the budget is whole afterwards."""
    budget = ByteBudget(4 * MAX)
    made = reader(budget)
    try:
        for piece in pieces:
            made.feed(piece)
        made.message()
    except InferplaneError:
        pass
    made.release()
    assert budget.used == 0
