"""OpenVINO GenAI's continuous batching behind the thinnest HTTP front: `/v1/completions`, greedy, streamed.

Runs in the peer's environment, so it knows nothing of this checkout. One thread drives the pipeline, step by step;
after each step it hands over to the event loop, once for all requests, what came of it.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import openvino_genai
import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(slots=True, eq=False)
class Call:
    """One request and where its answer goes."""

    prompt: str
    max_tokens: int
    connection: Connection
    handle: Any = None
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    tokens: int = 0
    is_begun: bool = False  # the head of the answer is sent


class Engine:
    """The pipeline in its thread."""

    def __init__(
        self, model: str, settings: Mapping[str, int], loop: asyncio.AbstractEventLoop
    ) -> None:
        config = openvino_genai.SchedulerConfig()
        config.enable_prefix_caching = True
        config.cache_size = settings["cache_gib"]
        config.max_num_batched_tokens = settings["max_num_batched_tokens"]
        properties = {"INFERENCE_NUM_THREADS": settings["threads"]}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(model, config, "CPU", properties)
        self._tokenizer = self._pipeline.get_tokenizer()
        self._bytes = {number: name for name, number in self._tokenizer.get_vocab().items()}
        self._arrived: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._running: list[Call] = []
        self._count = 0
        self._loop = loop

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self, call: Call) -> None:
        self._arrived.put(call)

    def _run(self) -> None:
        while True:
            self._take_arrived()
            self._pipeline.step()
            told = [
                (call, text, ended) for call in self._running for text, ended in self._new(call)
            ]
            self._running = [c for c in self._running if c.tokens < c.max_tokens]
            if told:
                self._loop.call_soon_threadsafe(_hand_out, told)

    def _take_arrived(self) -> None:
        """Wait only if there is nothing to do."""
        while not self._running or not self._arrived.empty():
            call = self._arrived.get()
            config = openvino_genai.GenerationConfig()
            config.max_new_tokens = call.max_tokens
            config.ignore_eos, config.do_sample = True, False
            ids = self._tokenizer.encode(call.prompt, add_special_tokens=False).input_ids
            call.handle = self._pipeline.add_request(self._count, ids, config)
            self._count += 1
            self._running.append(call)

    def _new(self, call: Call) -> list[tuple[str, bool]]:
        if not call.handle.can_read():
            return []
        ids = next(iter(call.handle.read().values())).generated_ids
        call.tokens += len(ids)
        ended = call.tokens >= call.max_tokens
        text = call.decoder.decode(b"".join(self._bytes[number] for number in ids), ended)
        return [(text, ended)]


def _hand_out(told: list[tuple[Call, str, bool]]) -> None:
    for call, text, ended in told:
        call.connection.tell(text, call, ended=ended)


class Connection(asyncio.Protocol):
    """HTTP/1.1 as the benchmark's client speaks it: one request at a time, with a content-length."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._received = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if len(body) < length:
            return
        self._received = body[length:]
        asked = json.loads(body[:length])
        self._engine.ask(Call(asked["prompt"], asked["max_tokens"], self))

    def tell(self, text: str, call: Call, *, ended: bool) -> None:
        """One event; behind the last one usage and the end."""
        events = b""
        if text or ended:
            reason = "length" if ended else None
            events = _event(choices=[{"index": 0, "text": text, "finish_reason": reason}])
        if ended:
            events += _event(choices=[], usage={"completion_tokens": call.tokens})
            events += b"data: [DONE]\n\n"
        if events and self._transport is not None:
            chunk = b"%x\r\n%b\r\n" % (len(events), events)
            head = b"" if call.is_begun else _HEAD
            call.is_begun = True
            self._transport.write(head + chunk + (b"0\r\n\r\n" if ended else b""))


def _event(**fields: Any) -> bytes:
    said = {"object": "text_completion", "model": "smollm2", **fields}
    return b"data: " + json.dumps(said).encode() + b"\n\n"


async def main() -> None:
    """Serve until ended."""
    settings = json.loads(os.environ["BENCHMARK_SETTINGS"])
    loop = asyncio.get_running_loop()
    engine = Engine(sys.argv[1], settings, loop)
    engine.start()
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", settings["port"])
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
