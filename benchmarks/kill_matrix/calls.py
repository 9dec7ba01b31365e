"""The calls: of every way into the mesh, each with a size of its own, by which its row is found.

Ids are the edge's, and a caller that was killed never saw one. What a caller sends and gets it notes before it goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import grpc
import httpx
import numpy as np
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc
from inferplane.generation.v1 import generation_pb2
from inferplane.generation.v1 import generation_service_pb2 as texts
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub

from services.rpc import channel

AFFINE, TINY = "affine", "tiny"
_SMALLEST = 600  # bytes
_STRIDE = 2  # one size in a hundred thousand can't be had, as lengths are written in front
_SECONDS = 30.0
_EVENT, _LAST_EVENT = "data: ", "data: [DONE]"
_PROMPT = "hello"
_X = np.ones((2, 4), np.float32)


class Kind(StrEnum):
    """Which way a call takes."""

    TENSOR = "tensor"  # ModelInfer, by gRPC
    REST = "rest"  # the same by REST
    STREAM = "stream"  # GenerateStream, by gRPC
    TEXT = "text"  # Generate, by gRPC
    OPENAI = "openai"  # a completion, by OpenAI's API
    SSE = "sse"  # the same, as events

    @property
    def model(self) -> str:
        """Which it calls."""
        return AFFINE if self in (Kind.TENSOR, Kind.REST) else TINY


@dataclass(frozen=True, slots=True)
class Call:
    """One call; its number is used once in a run."""

    number: int
    kind: Kind
    tokens: int  # of a text

    def message(self) -> Any:
        """What is sent by gRPC."""
        return _padded(_MESSAGES[self.kind](self), self._size)

    def body(self) -> bytes:
        """What is sent by HTTP."""
        return json.dumps(_BODIES[self.kind](self)).encode().ljust(self._size)

    def size(self) -> int:
        """Bytes of it, which no other call has."""
        return len(self.body()) if self.kind in _BODIES else int(self.message().ByteSize())

    @property
    def _size(self) -> int:
        return _SMALLEST + _STRIDE * self.number


def _padded(message: Any, size: int) -> Any:
    """With an id that makes it so large, or a byte larger where none does."""
    message.id = "x" * (size - message.ByteSize() - 4)
    while message.ByteSize() < size:
        message.id += "x"
    return message


def _tensor(_: Call) -> Any:
    made = oip.ModelInferRequest(model_name=AFFINE)
    made.inputs.add(name="x", datatype="FP32", shape=_X.shape)
    made.raw_input_contents.append(_X.tobytes())
    return made


def _text(call: Call) -> Any:
    make = texts.GenerateStreamRequest if call.kind is Kind.STREAM else texts.GenerateRequest
    return make(
        model_name=TINY,
        prompt=generation_pb2.Prompt(text=_PROMPT),
        sampling=generation_pb2.SamplingSettings(
            max_tokens=call.tokens, temperature=0.0, ignore_eos=True
        ),
    )


def _rest(_: Call) -> Mapping[str, Any]:
    values = _X.ravel().tolist()
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": list(_X.shape), "data": values}]}


def _completion(call: Call) -> Mapping[str, Any]:
    return {
        "model": TINY,
        "prompt": _PROMPT,
        "temperature": 0,
        "max_tokens": call.tokens,
        "ignore_eos": True,
        "stream": call.kind is Kind.SSE,
        "logprobs": 0,  # events name their tokens
    }


_MESSAGES = {Kind.TENSOR: _tensor, Kind.STREAM: _text, Kind.TEXT: _text}
_BODIES = {Kind.REST: _rest, Kind.OPENAI: _completion, Kind.SSE: _completion}
_PATHS = {Kind.REST: f"/v2/models/{AFFINE}/infer"}
_COMPLETIONS = "/v1/completions"


class Caller:
    """Makes calls; `note` is told of each what is sent, how many tokens came, and how it ended."""

    def __init__(self, address: str, token: str, note: Callable[..., None]) -> None:
        """On a running event loop."""
        self._note = note
        self._metadata = (("authorization", f"Bearer {token}"),)
        connected = channel.connect(address)
        self._oip = open_inference_pb2_grpc.GRPCInferenceServiceStub(connected)
        self._texts = GenerationServiceStub(connected)
        self._http = httpx.AsyncClient(
            base_url=f"http://{address}", headers=dict(self._metadata), timeout=_SECONDS
        )

    async def call(self, call: Call) -> bool:
        """Make it; whether it was answered. Never raises what a mesh that is hurt makes of it."""
        ways = {
            Kind.TENSOR: self._infer,
            Kind.STREAM: self._stream,
            Kind.TEXT: self._generate,
            Kind.SSE: self._events,
        }
        self._note(n=call.number, kind=call.kind, size=call.size(), tokens=call.tokens, sent=True)
        try:
            async with asyncio.timeout(2 * _SECONDS):
                end = await ways.get(call.kind, self._post)(call)
        except grpc.aio.AioRpcError as error:
            end = error.code().name
        except (httpx.HTTPError, TimeoutError) as error:
            end = type(error).__name__
        self._note(n=call.number, end=end)
        return end == "OK"

    async def _infer(self, call: Call) -> str:
        await self._oip.ModelInfer(call.message(), metadata=self._metadata, timeout=_SECONDS)
        return "OK"

    async def _generate(self, call: Call) -> str:
        whole = await self._texts.Generate(
            call.message(), metadata=self._metadata, timeout=_SECONDS
        )
        self._got(call, len(whole.choices[0].token_ids))
        return "OK"

    async def _stream(self, call: Call) -> str:
        running = self._texts.GenerateStream(
            call.message(), metadata=self._metadata, timeout=_SECONDS
        )
        async for one in running:
            self._got(call, sum(len(piece.token_ids) for piece in one.pieces))
        return "OK"

    async def _post(self, call: Call) -> str:
        path = _PATHS.get(call.kind, _COMPLETIONS)
        answer = await self._http.post(path, content=call.body())
        if answer.status_code != httpx.codes.OK:
            return f"HTTP {answer.status_code}"
        if call.kind is Kind.OPENAI:
            self._got(call, answer.json()["usage"]["completion_tokens"])
        return "OK"

    async def _events(self, call: Call) -> str:
        """As OpenAI's clients do it, the last event is the end, whatever becomes of the connection."""
        end = "CUT"
        async with self._http.stream("POST", _COMPLETIONS, content=call.body()) as answer:
            if answer.status_code != httpx.codes.OK:
                return f"HTTP {answer.status_code}"
            try:
                async for line in answer.aiter_lines():
                    end = self._event(call, line) or end
            except httpx.HTTPError as error:
                end = end if end == "OK" else type(error).__name__
        return end

    def _event(self, call: Call, line: str) -> str:
        """Note its tokens; how the call ended, if it says so."""
        if line == _LAST_EVENT:
            return "OK"
        if line.startswith(_EVENT):
            said = json.loads(line.removeprefix(_EVENT))
            if "error" in said:
                return "ERROR"
            told = [choice["logprobs"] for choice in said["choices"]]
            self._got(call, sum(len(one["tokens"]) for one in told if one is not None))
        return ""

    def _got(self, call: Call, tokens: int) -> None:
        self._note(n=call.number, got=tokens)
