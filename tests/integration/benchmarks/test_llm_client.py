"""What the benchmark of language models reads from a stream, and what it takes for a right text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
import pytest

from benchmarks.llm.call import Answer, Asked
from benchmarks.llm.connection import connect
from benchmarks.llm.figures import figures
from benchmarks.llm.reference import Reference

_ASKED = Asked(prompt="Once", prompt_tokens=1, max_tokens=3)
_LIMIT = 10.0  # seconds
Respond = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def event(**fields: object) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


_EVENTS = (
    event(choices=[{"index": 0, "text": " a"}]),
    event(choices=[{"index": 0, "text": " bé"}]),
    event(choices=[{"index": 0, "text": "", "finish_reason": "length"}]),
    event(choices=[], usage={"completion_tokens": 3}),
    b"data: [DONE]\n\n",
)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(pieces: tuple[bytes, ...]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


@asynccontextmanager
async def serving(respond: Respond) -> AsyncIterator[str]:
    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def answered(bytes_: bytes, size: int) -> Answer:
    """What a client reads of these bytes when they come `size` at a time."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"POST /v1/completions HTTP/1.1" in head
        await reader.readexactly(len(_ASKED.body()))
        for begin in range(0, len(bytes_), size):
            writer.write(bytes_[begin : begin + size])
            await writer.drain()
        writer.close()

    async with serving(respond) as address:
        connection = await connect(address)
        answer = Answer(asked=_ASKED, began=0.0)
        await connection.call(answer, "benchmark", _LIMIT)
        connection.close()
    return answer


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_stream_is_read_however_it_is_cut(size: int) -> None:
    """Byte by byte or at once: the same text, as many pieces as events with text, the server's count of tokens."""
    answer = await answered(_HEAD + chunked(_EVENTS), size)
    assert (answer.text, len(answer.pieces), answer.tokens) == (" a bé", 2, 3)
    assert answer.fault() == ""


async def test_several_events_in_a_chunk_and_one_event_in_several_are_the_same() -> None:
    """Chunks are the transport's; events end where events end."""
    joined = b"".join(_EVENTS)
    halves = (joined[:25], joined[25:])
    answer = await answered(_HEAD + chunked(halves), 100_000)
    assert (answer.text, answer.tokens) == (" a bé", 3)


@pytest.mark.parametrize(
    ("response", "fault"),
    [
        (b"HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nbusy", "HTTP 429"),
        (_HEAD + chunked(_EVENTS)[:40], "connection lost"),
        (_HEAD + chunked((event(error={"message": "no"}),)), "no"),
        (
            _HEAD + chunked((_EVENTS[0], event(choices=[], usage={"completion_tokens": 2}))),
            "2 tokens",
        ),
        (_HEAD + chunked((_EVENTS[3],)), "no text"),
    ],
    ids=["refused", "cut short", "an error in the stream", "too few tokens", "no text"],
)
async def test_what_is_no_whole_answer_is_a_fault(response: bytes, fault: str) -> None:
    """It counts as failed, with the reason, and never as tokens."""
    answer = await answered(response, 100_000)
    assert fault in answer.fault()
    assert figures("A", [answer]).tokens == 0


def test_times_count_from_when_a_call_was_due() -> None:
    """First text, gaps and rate come from the times of pieces with text."""
    answers = [
        Answer(asked=_ASKED, began=1.0, pieces=[1.5, 1.6, 1.9], tokens=3, ended=2.0),
        Answer(asked=_ASKED, began=1.0, pieces=[2.0, 2.1, 2.2], tokens=3, ended=3.0),
    ]
    found = figures("A", answers)
    assert found.rate == pytest.approx(3.0)
    assert found.first == pytest.approx((1.0, 1.0))
    assert found.gap[1] == pytest.approx(0.3)


def test_texts_of_others_are_no_right_texts() -> None:
    """Most texts must begin as the reference does, and a server that mixes up its callers fails."""
    texts = tuple(f"{number} is the number that was asked for" for number in range(10, 22))
    right = Reference((_ASKED,) * len(texts), texts)
    assert right.judge(texts)[1]
    mixed_up = (*texts[1:], texts[0])
    assert not right.judge(mixed_up)[1]
    assert not right.judge(["The"] * len(texts))[1]
