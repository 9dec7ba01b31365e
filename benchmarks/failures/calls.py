"""The calls of the load: what each sends, whether its answer is right, and how it ended.

A caller here is a sensible one: it waits for a connection as long as the call's deadline allows, and sends a call once.
A call that was sent and lost has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import grpc
import httpx
import numpy as np
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc
from inferplane.generation.v1 import generation_pb2
from inferplane.generation.v1 import generation_service_pb2 as texts
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub

from services.rpc import channel

TENSOR_ENDPOINT, TEXT_ENDPOINT = "affine", "tiny"
FACTOR = 2.0
DEADLINE = 30.0  # seconds
_PROMPT = "hello"
_CONNECT_TRIES = 6  # of HTTP; some seconds
_LONGEST_DETAIL = 200


class Kind(StrEnum):
    """What a call asks for."""

    TENSOR = "tensor"  # one message for another, by gRPC
    STREAM = "stream"  # a text in pieces, by gRPC
    OPENAI = "openai"  # a whole text, by OpenAI's API


@dataclass(frozen=True, slots=True)
class Ending:
    """How one call ended."""

    status: str  # OK, WRONG (answered, but not what it should be), a gRPC status's name or HTTP's number
    request_id: str = ""  # the edge's; empty: nothing was heard of it
    detail: str = ""
    tokens: int = 0  # received
    begun: bool = False  # something of the answer had come


class Caller(Protocol):
    """Makes the calls of one kind."""

    async def call(self, number: int) -> Ending:
        """The call of this number; never raises."""
        ...

    async def close(self) -> None: ...


def tokens_of(number: int) -> int:
    """How many a text of that number has."""
    return 3 + number % 14


class TensorCaller:
    """`ModelInfer` with numbers of its own in each call."""

    def __init__(self, address: str, token: str) -> None:
        self._channel = _channel(address)
        self._stub = open_inference_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._metadata = (("authorization", f"Bearer {token}"),)

    async def call(self, number: int) -> Ending:
        x = np.arange(4, dtype=np.float32) + np.float32(number % 100_000)
        request = oip.ModelInferRequest(model_name=TENSOR_ENDPOINT)
        request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
        request.outputs.add(name="y")
        request.raw_input_contents.append(x.tobytes())
        call = self._stub.ModelInfer(
            request, metadata=self._metadata, timeout=DEADLINE, wait_for_ready=True
        )
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            return _failed(error)
        right = answer.raw_output_contents[0] == (x * np.float32(FACTOR)).tobytes()
        return Ending("OK" if right else "WRONG", _request_id(await call.initial_metadata()))

    async def close(self) -> None:
        await self._channel.close()


class StreamCaller:
    """`GenerateStream`, whose tokens must be the same each time."""

    def __init__(self, address: str, token: str) -> None:
        self._channel = _channel(address)
        self._stub = GenerationServiceStub(self._channel)
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._known: tuple[int, ...] = ()  # the longest answer so far

    async def call(self, number: int) -> Ending:
        request = texts.GenerateStreamRequest(
            model_name=TEXT_ENDPOINT,
            prompt=generation_pb2.Prompt(text=_PROMPT),
            sampling=generation_pb2.SamplingSettings(
                max_tokens=tokens_of(number), temperature=0.0, ignore_eos=True
            ),
        )
        call = self._stub.GenerateStream(
            request, metadata=self._metadata, timeout=DEADLINE, wait_for_ready=True
        )
        got: list[int] = []
        try:
            async for one in call:
                got += (token for piece in one.pieces for token in piece.token_ids)
        except grpc.aio.AioRpcError as error:
            return _failed(error, tokens=len(got), begun=bool(got))
        right = len(got) == tokens_of(number) and self._is_known(tuple(got))
        ident = _request_id(await call.initial_metadata())
        return Ending("OK" if right else "WRONG", ident, tokens=len(got), begun=True)

    def _is_known(self, got: tuple[int, ...]) -> bool:
        shorter, longer = sorted((self._known, got), key=len)
        self._known = longer
        return longer[: len(shorter)] == shorter

    async def close(self) -> None:
        await self._channel.close()


class OpenAiCaller:
    """`/v1/completions`, whose text must be the same each time."""

    def __init__(self, address: str, token: str) -> None:
        self._client = httpx.AsyncClient(
            base_url=f"http://{address}",
            headers={"authorization": f"Bearer {token}"},
            transport=httpx.AsyncHTTPTransport(retries=_CONNECT_TRIES),
            timeout=DEADLINE,
        )
        self._known: dict[int, str] = {}

    async def call(self, number: int) -> Ending:
        wanted = tokens_of(number)
        body = {
            "model": TEXT_ENDPOINT,
            "prompt": _PROMPT,
            "temperature": 0,
            "max_tokens": wanted,
            "ignore_eos": True,
        }
        try:
            answer = await self._client.post("/v1/completions", json=body)
        except httpx.HTTPError as error:
            return Ending(type(error).__name__, detail=str(error)[:_LONGEST_DETAIL])
        ident = answer.headers.get("x-request-id", "")
        if answer.status_code != httpx.codes.OK:
            return Ending(f"HTTP {answer.status_code}", ident, answer.text[:_LONGEST_DETAIL])
        said = answer.json()
        got, text = said["usage"]["completion_tokens"], said["choices"][0]["text"]
        right = got == wanted and self._known.setdefault(wanted, text) == text
        return Ending("OK" if right else "WRONG", ident, tokens=got, begun=True)

    async def close(self) -> None:
        await self._client.aclose()


def callers(address: str, token: str) -> dict[Kind, Caller]:
    """One for each kind."""
    return {
        Kind.TENSOR: TensorCaller(address, token),
        Kind.STREAM: StreamCaller(address, token),
        Kind.OPENAI: OpenAiCaller(address, token),
    }


def _channel(address: str) -> grpc.aio.Channel:
    own = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    return grpc.aio.insecure_channel(address, options=[*channel.options(), *own])


def _failed(error: grpc.aio.AioRpcError, *, tokens: int = 0, begun: bool = False) -> Ending:
    ident = _request_id(error.initial_metadata()) or _request_id(error.trailing_metadata())
    detail = (error.details() or "")[:_LONGEST_DETAIL]
    return Ending(error.code().name, ident, detail, tokens, begun)


def _request_id(metadata: Iterable[Sequence[Any]] | None) -> str:
    return next((str(value) for name, value in metadata or () if name == "x-request-id"), "")
