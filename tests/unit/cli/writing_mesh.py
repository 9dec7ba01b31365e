"""A small GenerationService that writes what a test scripted, served by the real server on a free port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from inferplane.generation.v1 import (
    generation_pb2,
    generation_service_pb2,
    generation_service_pb2_grpc,
)

from services.rpc.errors import InferplaneError
from services.rpc.server import RpcServer

_LIMIT = 1 << 20


@dataclass
class Writer:
    """What the service was asked, and what it answers."""

    pieces: list[str] = field(default_factory=lambda: ["Hel", "lo\n", "you"])
    error: InferplaneError | None = None  # instead of the first piece
    breaks: InferplaneError | None = None  # after the last piece
    holds_after: int | None = None  # so many pieces are sent, then it waits until the caller goes
    asked: list[Any] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


def _usage() -> dict[str, Any]:
    timings = generation_pb2.Timings()
    timings.time_to_first_token.FromMilliseconds(40)
    timings.total.FromMilliseconds(140)
    usage = generation_pb2.Usage(prompt_tokens=20, completion_tokens=11, cached_prompt_tokens=16)
    return {"usage": usage, "timings": timings}


def _logprobs(request: Any, text: str) -> list[generation_pb2.TokenLogprob]:
    if not request.sampling.logprobs:
        return []
    top = [generation_pb2.TopLogprob(token=b"\xf0\x9f", logprob=-1.5)]
    token = generation_pb2.TokenLogprob(token=text.encode(), logprob=-0.25)
    token.top.extend(top[: request.sampling.top_logprobs])
    return [token]


class _Service(generation_service_pb2_grpc.GenerationServiceServicer):
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def Generate(self, request: Any, context: Any) -> Any:
        self._writer.asked.append(request)
        if self._writer.error is not None:
            raise self._writer.error
        choices = [
            generation_pb2.Choice(
                index=index, text="".join(self._writer.pieces), logprobs=_logprobs(request, "a")
            )
            for index in range(max(1, request.sampling.n))
        ]
        return generation_service_pb2.GenerateResponse(
            model_name=request.model_name, choices=choices, **_usage()
        )

    async def GenerateStream(self, request: Any, context: Any) -> AsyncIterator[Any]:
        writer = self._writer
        writer.asked.append(request)
        if writer.error is not None:
            raise writer.error
        for number, text in enumerate(writer.pieces):
            if number == writer.holds_after:
                writer.held.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    writer.gone.set()
            piece = generation_pb2.Piece(text=text, logprobs=_logprobs(request, text))
            yield generation_service_pb2.GenerateStreamResponse(pieces=[piece])
        if writer.breaks is not None:
            raise writer.breaks
        yield generation_service_pb2.GenerateStreamResponse(**_usage())


@asynccontextmanager
async def writing(writer: Writer) -> AsyncIterator[str]:
    """The service on a free port; yields its address."""
    server = RpcServer(address="127.0.0.1:0", max_message_bytes=_LIMIT)
    generation_service_pb2_grpc.add_GenerationServiceServicer_to_server(
        _Service(writer), server.grpc
    )
    address = await server.start([])
    try:
        yield address
    finally:
        await server.stop(0)
