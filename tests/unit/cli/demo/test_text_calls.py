"""The demo's questions to a language model, and what is judged of the answers."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from services.cli.demo import text_calls
from services.cli.demo.judge import Judge
from services.cli.demo.text_calls import Question, Told
from tests.unit.cli.writing_mesh import Writer, writing

_QUESTION = Question("smol", "Why?", 9)


async def test_by_grpc() -> None:
    """At once and streamed ask the same, greedily, and count the same."""
    writer = Writer()
    async with writing(writer) as address:
        told = await asyncio.to_thread(text_calls.at_once, address, _QUESTION)
        assert told == Told("Hello\nyou", 20, 16)
        assert await asyncio.to_thread(text_calls.streamed, address, _QUESTION) == told
    first, second = writer.asked
    assert first.sampling == second.sampling
    assert first.sampling.HasField("temperature")
    assert (first.sampling.temperature, first.sampling.max_tokens) == (0, 9)
    assert first.prompt == second.prompt


_CHUNKS: list[dict[str, Any]] = [
    {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"delta": {"content": "Hel"}}]},
    {"choices": [{"delta": {"content": "lo"}, "finish_reason": None}]},
    {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    {
        "choices": [],
        "usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}},
    },
]


@pytest.fixture
def openai_address() -> Iterator[str]:
    """A server that streams the chunks above."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert body["stream"]
            events = [*(json.dumps(chunk) for chunk in _CHUNKS), "[DONE]"]
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write("".join(f"data: {event}\n\n" for event in events).encode())

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_in_openais_shape(openai_address: str) -> None:
    """Pieces are shown as they come; usage is that of the last chunk."""
    shown: list[str] = []
    told = text_calls.openai(openai_address, _QUESTION, shown.append)
    assert told == Told("Hello", 5, 3)
    assert "".join(shown) == "Hello"


def test_answers_must_be_there_and_agree() -> None:
    """Two empty answers are no agreement."""
    judge = Judge()
    assert [judge.agree("a", "a"), judge.agree("a", "b"), judge.agree("", "")] == [
        *(True, False, False),
    ]
    assert (judge.right, judge.wrong) == (1, 2)
