"""A language model in a whole mesh: the same text by every way, many at once, bad requests, callers who go."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import openai
import pytest
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from inference import open_inference_pb2 as oip
from inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from inferplane.discovery.v1 import discovery_service_pb2, discovery_service_pb2_grpc
from inferplane.generation.v1 import generation_pb2 as generation
from inferplane.generation.v1 import generation_service_pb2 as service
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub

from tests.e2e.mesh import Mesh, eventually

_CONTEXT = 8192  # tokens: the model's own


@pytest.fixture(scope="module")
def channel(text_mesh: Mesh) -> Iterator[grpc.Channel]:
    with text_mesh.channel() as channel:
        yield channel


@pytest.fixture(scope="module")
def client(text_mesh: Mesh) -> Iterator[openai.OpenAI]:
    url = f"http://{text_mesh.address}/v1"
    with openai.OpenAI(base_url=url, api_key=text_mesh.token, max_retries=0, timeout=60) as client:
        yield client


def asking(text: str = "The capital of France is", tokens: int = 12) -> dict[str, Any]:
    return {
        "model_name": "smollm2",
        "prompt": generation.Prompt(text=text),
        "sampling": generation.SamplingSettings(max_tokens=tokens, temperature=0.0),
    }


def chat(tokens: int = 16, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    said = {"model": "smollm2", "messages": messages, "max_tokens": tokens, "temperature": 0}
    return said | fields


def workers(channel: grpc.Channel) -> list[Any]:
    """What discovery knows of the workers that have the model."""
    stub = discovery_service_pb2_grpc.DiscoveryServiceStub(channel)
    listed = stub.ListWorkers(discovery_service_pb2.ListWorkersRequest(), timeout=10).workers
    return [worker for worker in listed if any("smollm2" in v.version for v in worker.versions)]


def test_the_same_text_by_every_way(channel: grpc.Channel, client: openai.OpenAI) -> None:
    """Whole and in pieces, by gRPC and in OpenAI's words, from text and from a conversation."""
    stub: Any = GenerationServiceStub(channel)
    whole = stub.Generate(service.GenerateRequest(**asking()), timeout=60)
    text = whole.choices[0].text
    assert "Paris" in text
    assert whole.usage.completion_tokens == 12
    pieces = stub.GenerateStream(service.GenerateStreamRequest(**asking()), timeout=60)
    assert "".join(piece.text for message in pieces for piece in message.pieces) == text
    completed = client.completions.create(
        model="smollm2", prompt="The capital of France is", max_tokens=12, temperature=0
    )
    assert completed.choices[0].text == text
    said = client.chat.completions.create(**chat()).choices[0].message.content
    assert said
    stream = client.chat.completions.create(**chat(stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == said
    conversation = generation.Conversation(
        messages=[generation.ChatMessage(role="user", content="What is the capital of France?")]
    )
    request = service.GenerateRequest(**asking(tokens=16))
    request.prompt.conversation.CopyFrom(conversation)
    assert stub.Generate(request, timeout=60).choices[0].text == said


def test_the_same_text_alone_and_among_others(client: openai.OpenAI) -> None:
    """Sixteen at once, with one beginning in common, say what each says alone."""
    prompts = [f"Once upon a time there was a number {n}, and" for n in range(16)]

    def written(prompt: str) -> str:
        answer = client.completions.create(
            model="smollm2", prompt=prompt, max_tokens=16, temperature=0
        )
        return answer.choices[0].text

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(written, prompts))
    assert [written(prompt) for prompt in prompts[::5]] == together[::5]


def test_models_are_listed(client: openai.OpenAI, text_mesh: Mesh) -> None:
    """Endpoints of language models, and no others; one by its name; an unknown one is not found."""
    listed = [model.id for model in client.models.list()]
    assert "smollm2" in listed
    assert "digits" not in listed
    assert client.models.retrieve("smollm2").owned_by == "inferplane"
    for name in ("digits", "nobody"):
        with pytest.raises(openai.NotFoundError) as told:
            client.models.retrieve(name)
        assert told.value.code == "model_not_found"


def test_calls_of_the_wrong_kind(channel: grpc.Channel) -> None:
    """Tensors for the language model, text of a tensor model: the status says which call is right."""
    infer: Any = GRPCInferenceServiceStub(channel)
    text: Any = GenerationServiceStub(channel)
    digits = asking() | {"model_name": "digits"}
    calls: list[Callable[[], Any]] = [
        lambda: infer.ModelInfer(oip.ModelInferRequest(model_name="smollm2"), timeout=10),
        lambda: text.Generate(service.GenerateRequest(**digits), timeout=10),
        lambda: list(text.GenerateStream(service.GenerateStreamRequest(**digits), timeout=10)),
    ]
    for call in calls:
        with pytest.raises(grpc.RpcError) as told:
            call()
        assert told.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_reflection_knows_the_service(channel: grpc.Channel) -> None:
    """Generic clients find it."""
    database = ProtoReflectionDescriptorDatabase(channel)
    known = database.get_services()
    assert "inferplane.generation.v1.GenerationService" in known


_BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "empty prompt": ({"prompt": ""}, 400, "empty"),
    "beyond the context": ({"prompt": [504] * (_CONTEXT - 3)}, 400, str(_CONTEXT)),
    "no tokens": ({"max_tokens": 0}, 400, "max_tokens"),
    "a thousand million tokens": ({"max_tokens": 10**9}, 400, "max_tokens"),
    "temperature": ({"temperature": -1}, 400, "temperature"),
    "top_p": ({"top_p": 0}, 400, "top_p"),
    "a million answers": ({"n": 10**6}, 400, "n:"),
    "many stop strings": ({"stop": ["x"] * 10**5}, 400, "stop"),
    "unknown token": ({"prompt": [10**6]}, 400, "prompt[0]"),
    "bias of an unknown token": ({"logit_bias": {"1000000": 1}}, 400, "logit_bias"),
    "20 MB": ({"prompt": "word " * 4 * 2**20}, 413, str(4 * 2**20)),
    "4 MB": ({"prompt": "word " * 800_000}, 400, str(_CONTEXT)),
    "unknown model": ({"model": "nobody"}, 404, "nobody"),
}


def test_bad_requests_are_told_what_is_wrong(text_mesh: Mesh, channel: grpc.Channel) -> None:
    """Each with its field and what is allowed; the workers live on."""
    before = {worker.name: worker.pid for worker in workers(channel)}
    for name, (fields, status, words) in _BAD.items():
        said = {"model": "smollm2", "prompt": "hi", "max_tokens": 4} | fields
        url = f"http://{text_mesh.address}/v1/completions"
        request = Request(url, json.dumps(said).encode(), dict(text_mesh.key))
        with pytest.raises(HTTPError) as told:
            urlopen(request, timeout=60)
        error = json.loads(told.value.read())["error"]
        assert (told.value.code, error["type"]) == (status, "invalid_request_error"), name
        assert words in error["message"], name
    assert {worker.name: worker.pid for worker in workers(channel)} == before


def test_callers_who_go_free_what_they_hold(channel: grpc.Channel) -> None:
    """Sixteen long streams are left after their first piece: soon nothing runs or waits anywhere."""
    stub: Any = GenerationServiceStub(channel)
    begun = threading.Barrier(16)

    def leave(number: int) -> None:
        request = service.GenerateStreamRequest(**asking(f"Story {number}:", tokens=1500))
        request.sampling.ignore_eos = True
        stream = stub.GenerateStream(request, timeout=60)
        next(stream)
        begun.wait(60)
        stream.cancel()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(leave, range(16)))

    def is_idle() -> bool:
        loads = [v.engine for worker in workers(channel) for v in worker.versions]
        return not any(load.running or load.waiting or load.used_blocks for load in loads)

    eventually(is_idle, seconds=150, what="the engines are idle")
