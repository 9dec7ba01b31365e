"""Questions to a language model: by gRPC at once and streamed, and in OpenAI's shape over plain HTTP."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from inferplane.generation.v1 import (
    generation_pb2,
    generation_service_pb2,
    generation_service_pb2_grpc,
)

from services.cli.adapters import access

_SECONDS = 60.0
_PREFIX = b"data: "
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Told:
    """An answer."""

    text: str
    prompt_tokens: int
    cached_tokens: int  # of the prompt's


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked; always answered with the likeliest tokens, so that the same question has one answer."""

    endpoint: str
    text: str
    max_tokens: int


def _grpc_fields(question: Question) -> dict[str, Any]:
    said = [generation_pb2.ChatMessage(role="user", content=question.text)]
    conversation = generation_pb2.Conversation(messages=said)
    sampling = generation_pb2.SamplingSettings(temperature=0, max_tokens=question.max_tokens)
    return {
        "model_name": question.endpoint,
        "prompt": generation_pb2.Prompt(conversation=conversation),
        "sampling": sampling,
    }


def at_once(address: str, question: Question) -> Told:
    """By gRPC, all of it in one message."""
    request = generation_service_pb2.GenerateRequest(**_grpc_fields(question))
    with grpc.insecure_channel(address) as channel:
        stub = generation_service_pb2_grpc.GenerationServiceStub(channel)
        response = stub.Generate(request, timeout=_SECONDS, metadata=access.metadata(address))
    usage = response.usage
    return Told(response.choices[0].text, usage.prompt_tokens, usage.cached_prompt_tokens)


def streamed(address: str, question: Question) -> Told:
    """By gRPC, piece by piece."""
    request = generation_service_pb2.GenerateStreamRequest(**_grpc_fields(question))
    text, usage = "", generation_pb2.Usage()
    with grpc.insecure_channel(address) as channel:
        stub = generation_service_pb2_grpc.GenerationServiceStub(channel)
        key = access.metadata(address)
        for response in stub.GenerateStream(request, timeout=_SECONDS, metadata=key):
            text += "".join(piece.text for piece in response.pieces)
            usage = response.usage
    return Told(text, usage.prompt_tokens, usage.cached_prompt_tokens)


def openai_body(question: Question) -> dict[str, Any]:
    """The question in OpenAI's shape."""
    return {
        "model": question.endpoint,
        "messages": [{"role": "user", "content": question.text}],
        "temperature": 0,
        "max_tokens": question.max_tokens,
        "stream": True,
    }


def openai(address: str, question: Question, show: Callable[[str], None]) -> Told:
    """In OpenAI's shape over HTTP; each piece is shown as it comes."""
    body = {**openai_body(question), "stream_options": {"include_usage": True}}
    call = urllib.request.Request(
        f"http://{address}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", **access.headers(address)},
    )
    text = ""
    usage: dict[str, Any] = {}
    with urllib.request.urlopen(call, timeout=_SECONDS) as reply:  # noqa: S310 - as above
        for chunk in _events(reply):
            for choice in chunk["choices"]:
                piece = choice["delta"].get("content") or ""
                show(piece)
                text += piece
            usage = chunk.get("usage") or usage
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Told(text, usage.get("prompt_tokens", 0), cached)


def _events(lines: Any) -> Iterator[Any]:
    """The JSON of each server-sent event, until the last."""
    for line in lines:
        if line.startswith(_PREFIX):
            data = line.removeprefix(_PREFIX).strip()
            if data == _DONE:
                return
            yield json.loads(data)
