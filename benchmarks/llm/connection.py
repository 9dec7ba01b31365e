"""HTTP/1.1 with server-sent events, by hand: client and server share the cores, so the client must cost little."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from benchmarks.llm.call import Answer

_PATH = b"/v1/completions"


class Connection(asyncio.Protocol):
    """Kept alive; one call at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._answer: Answer | None = None
        self._ended: asyncio.Future[None] | None = None
        self._body = _Body(self._take)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    async def call(self, answer: Answer, host: str, limit: float) -> None:
        """Fill `answer`; what goes wrong is noted in it."""
        assert self._transport is not None
        body = answer.asked.body()
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n" % (
            _PATH,
            host.encode(),
        )
        self._answer, self._ended = answer, asyncio.get_running_loop().create_future()
        self._body = _Body(self._take)
        self._transport.write(head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        try:
            async with asyncio.timeout(limit):
                await self._ended
        except TimeoutError:
            answer.error = f"no end after {limit:g} s"
            self.close()
        answer.ended = time.perf_counter()

    def data_received(self, data: bytes) -> None:
        body, answer = self._body, self._answer
        body.feed(data)
        if answer is not None and body.is_complete:
            if body.status != 200:
                answer.error = f"HTTP {body.status}: {body.rest[:500]!r}"
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and self._ended is not None and not self._ended.done():
            self._answer.error = self._answer.error or f"connection lost: {exc}"
            self._end()

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _take(self, event: bytes) -> None:
        assert self._answer is not None
        self._answer.take(event, time.perf_counter())

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


@dataclass(slots=True)
class _Body:
    """Reads head, chunks and events of one answer as they come."""

    take: Callable[[bytes], None]
    status: int = 0
    is_complete: bool = False
    rest: bytes = b""  # of the body, what was no whole event
    _raw: bytes = b""
    _left: int | None = None  # of a body with a length; None: chunked

    def feed(self, data: bytes) -> None:
        self._raw += data
        if not self.status and not self._read_head():
            return
        if self._left is None:
            self._read_chunks()
        else:
            taken, self._raw = self._raw[: self._left], self._raw[self._left :]
            self._left -= len(taken)
            self.rest += taken
            self.is_complete = not self._left
        self._read_events()

    def _read_head(self) -> bool:
        head, end, after = self._raw.partition(b"\r\n\r\n")
        if not end:
            return False
        self.status, self._raw = int(head[9:12]), after
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                self._left = int(line[15:])
        return True

    def _read_chunks(self) -> None:
        while True:
            size, end, after = self._raw.partition(b"\r\n")
            if not end:
                return
            length = int(size, 16)
            if len(after) < length + 2:
                return
            self.rest += after[:length]
            self._raw = after[length + 2 :]
            if not length:
                self.is_complete = True
                return

    def _read_events(self) -> None:
        *events, self.rest = self.rest.split(b"\n\n")
        for event in events:
            if event.startswith(b"data:"):
                self.take(event[5:].strip())


async def connect(address: str) -> Connection:
    """To `host:port` or `unix:PATH`."""
    loop = asyncio.get_running_loop()
    if address.startswith("unix:"):
        _, connection = await loop.create_unix_connection(Connection, address[5:])
        return connection
    host, _, port = address.rpartition(":")
    _, connection = await loop.create_connection(Connection, host, int(port))
    return connection
