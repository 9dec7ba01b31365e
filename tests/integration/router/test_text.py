"""Text through a real Envoy and a real worker's front, with a scripted runner: routes, pieces, ends."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from inferplane.generation.v1 import generation_pb2 as generation
from inferplane.generation.v1 import generation_service_pb2 as service
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub

from services.router.domain.catalog import CatalogUpdate, VersionChange
from services.router.domain.topology import Endpoint, Target
from services.rpc.names import EndpointName
from tests.integration.router.edge import DIGITS, V1, EdgeUnderTest
from tests.text_worker import VERSION, TextWorker
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity, continued, text_of

ENDPOINT = EndpointName("chat")


@pytest.fixture(params=["auto", "grpcio"])
async def worker(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[TextWorker]:
    """Behind either front; its runner computes only while it is let."""
    hold = threading.Event()
    hold.set()
    runner = ScriptedRunner(capacity(blocks=1024, max_blocks=128), hold=hold)
    worker = await TextWorker.start(f"unix:{folder}/text.sock", runner=runner, front=request.param)
    yield worker
    hold.set()
    await worker.stop()


@pytest.fixture
async def edge(folder: Path, worker: TextWorker) -> AsyncIterator[EdgeUnderTest]:
    """An endpoint of a language model and one of a tensor model."""
    edge = await EdgeUnderTest.start(folder)
    change = VersionChange(VERSION, stateful=False, language=True)
    edge.publisher.hear_registry(CatalogUpdate(changes=(change,), synced=True))
    edge.set_endpoint(Endpoint(name=ENDPOINT, targets=(Target(VERSION, 1),)))
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    echo = await edge.add_worker("echo", V1)
    edge.set_workers({worker.address: {VERSION}, echo.address: {V1}})
    await edge.in_sync()
    yield edge
    await edge.stop()


@pytest.fixture
def stub(edge: EdgeUnderTest) -> Any:
    return GenerationServiceStub(edge.channel)


def asking(text: str = "hello", tokens: int = 8, **fields: Any) -> dict[str, Any]:
    return {
        "model_name": "chat",
        "prompt": generation.Prompt(text=text),
        "sampling": generation.SamplingSettings(max_tokens=tokens, temperature=0.0),
        **fields,
    }


async def test_all_of_it_at_once(stub: Any) -> None:
    """Text, why it ended, counts, times, and which version it was."""
    answer = await stub.Generate(service.GenerateRequest(**asking(id="7")), timeout=10)
    (choice,) = answer.choices
    assert choice.text == text_of(continued(b"hello", 8))
    assert choice.finish_reason == generation.FINISH_REASON_LENGTH
    assert (answer.model_name, answer.model_version, answer.id) == ("chat", "1", "7")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 8)
    assert answer.timings.total.ToNanoseconds() > answer.timings.queue.ToNanoseconds() > 0


async def test_pieces_come_as_they_are_made(stub: Any, worker: TextWorker) -> None:
    """The first is there while the rest is not computed; together they are the text; counts come last."""
    assert worker.runner.hold is not None
    texts: list[str] = []
    first_ends = threading.Event()

    def stop_after_first(_: object) -> None:
        if worker.runner.steps == 3 and not first_ends.is_set():
            first_ends.set()
            worker.runner.hold.clear()  # type: ignore[union-attr] # it is there

    worker.runner.on_step = stop_after_first
    stream = stub.GenerateStream(service.GenerateStreamRequest(**asking(tokens=20)), timeout=10)
    last = None
    async for message in stream:
        last = message
        texts += [piece.text for piece in message.pieces]
        if not worker.runner.hold.is_set():
            assert len("".join(texts)) < 20
            worker.runner.hold.set()
    assert "".join(texts) == text_of(continued(b"hello", 20))
    assert len(texts) > 1
    assert last is not None
    assert last.usage.completion_tokens == 20
    assert last.pieces[-1].finish_reason == generation.FINISH_REASON_LENGTH
