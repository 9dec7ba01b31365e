"""Text through a real Envoy and a real worker's front, with a scripted runner: routes, pieces, ends."""

import asyncio
import json
import threading
from typing import Any

import grpc
import pytest
from inference import open_inference_pb2 as oip
from inferplane.generation.v1 import generation_pb2 as generation
from inferplane.generation.v1 import generation_service_pb2 as service
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub

from services.router.domain.topology import Endpoint, Target
from services.worker.domain.counters import Outcome
from tests.integration.router.edge import EdgeUnderTest
from tests.integration.router.text_edge import ENDPOINT
from tests.integration.router.waiting import until
from tests.text_worker import VERSION, TextWorker
from tests.unit.worker.llm.scripted_runner import continued, text_of

_LONG = 400  # tokens of an answer that is not to end by itself


@pytest.fixture
def stub(text_edge: EdgeUnderTest) -> Any:
    return GenerationServiceStub(text_edge.channel)


def asking(text: str = "hello", tokens: int = 8, **sampling: Any) -> dict[str, Any]:
    settings = {"max_tokens": tokens, "temperature": 0.0} | sampling
    return {
        "model_name": "chat",
        "prompt": generation.Prompt(text=text),
        "sampling": generation.SamplingSettings(**settings),
    }


def hold_after(worker: TextWorker, steps: int) -> threading.Event:
    """The runner stops before it ends a step, `steps` from now; what it waits for."""
    hold, last = worker.runner.hold, worker.runner.steps + steps
    assert hold is not None

    def stop(_: object) -> None:
        if worker.runner.steps == last:
            hold.clear()

    worker.runner.on_step = stop
    return hold


async def ended(worker: TextWorker, outcome: Outcome, count: int = 1) -> None:
    """Wait until so many calls have ended like this, nothing runs, and all blocks are free or cached."""
    outcomes = worker.served.statistics.outcomes

    def holds() -> bool:
        load = worker.engine.load()
        nothing = not (load.running or load.waiting or load.used_blocks)
        return outcomes[outcome].count == count and nothing and not worker.served.traffic.in_flight

    await until(holds)


async def test_all_of_it_at_once(stub: Any, text_worker: TextWorker) -> None:
    """Text, why it ended, counts, times, which version it was; and how busy the engine is, for balancing."""
    call = stub.Generate(service.GenerateRequest(**asking(), id="7"), timeout=60)
    answer = await call
    (choice,) = answer.choices
    assert choice.text == text_of(continued(b"hello", 8))
    assert choice.finish_reason == generation.FINISH_REASON_LENGTH
    assert (answer.model_name, answer.model_version, answer.id) == ("chat", "1", "7")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 8)
    assert answer.timings.total.ToNanoseconds() > answer.timings.queue.ToNanoseconds() > 0
    assert "kv_cache_usage" in dict(await call.trailing_metadata())["endpoint-load-metrics"]
    await ended(text_worker, Outcome.SUCCEEDED)


async def test_envoy_finds_the_worker_well(
    text_edge: EdgeUnderTest, text_worker: TextWorker
) -> None:
    """Behind either front the checks of its health are answered; with none well Envoy would call the dead, too."""

    async def is_well() -> bool:
        return await text_edge.envoy.counter(f"cluster.{VERSION}.health_check.success") > 0

    await until(is_well)
    assert await text_edge.envoy.counter(f"cluster.{VERSION}.health_check.network_failure") == 0


async def test_pieces_come_as_they_are_made(stub: Any, text_worker: TextWorker) -> None:
    """The first is there while the rest is not computed; together they are the text; counts come last."""
    hold = hold_after(text_worker, 4)
    stream = stub.GenerateStream(service.GenerateStreamRequest(**asking(tokens=20)), timeout=60)
    messages = []
    async for message in stream:
        messages.append(message)
        if not hold.is_set():
            hold.set()
    pieces = [piece for message in messages for piece in message.pieces]
    assert "".join(piece.text for piece in pieces) == text_of(continued(b"hello", 20))
    assert len(pieces) > 1
    assert messages[0].model_version == "1"
    assert messages[-1].usage.completion_tokens == 20
    assert pieces[-1].finish_reason == generation.FINISH_REASON_LENGTH
    await ended(text_worker, Outcome.SUCCEEDED)


async def test_many_streams_keep_apart(stub: Any) -> None:
    """Each gets its own text, whatever else is written."""

    async def written(prompt: str) -> str:
        request = service.GenerateStreamRequest(**asking(prompt, tokens=32))
        stream = stub.GenerateStream(request, timeout=60)
        return "".join([piece.text async for message in stream for piece in message.pieces])

    prompts = [f"prompt {number}" for number in range(24)]
    texts = await asyncio.gather(*map(written, prompts))
    assert texts == [text_of(continued(prompt.encode(), 32)) for prompt in prompts]


@pytest.mark.parametrize("n", [1, 3])
async def test_a_stream_that_is_cancelled_frees_its_blocks(
    stub: Any, text_worker: TextWorker, n: int
) -> None:
    """Whatever was to be written is not, of any of the answers."""
    hold = hold_after(text_worker, 4)
    request = service.GenerateStreamRequest(**asking(tokens=_LONG, n=n))
    stream = stub.GenerateStream(request, timeout=60)
    assert (await stream.read()).pieces
    stream.cancel()
    await until(lambda: not text_worker.served.traffic.in_flight)
    hold.set()
    await ended(text_worker, Outcome.CANCELLED)
    assert text_worker.runner.steps < _LONG // 2


async def test_a_call_that_is_cancelled_frees_its_blocks(
    stub: Any, text_worker: TextWorker
) -> None:
    """One that waits for all of the text."""
    hold = hold_after(text_worker, 4)
    call = stub.Generate(service.GenerateRequest(**asking(tokens=_LONG)), timeout=60)
    asked = asyncio.ensure_future(call)
    await until(lambda: not hold.is_set())
    call.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await until(lambda: not text_worker.served.traffic.in_flight)
    hold.set()
    await ended(text_worker, Outcome.CANCELLED)
    assert text_worker.runner.steps < _LONG // 2


@pytest.mark.parametrize("stream", [True, False])
async def test_an_http_client_that_goes_frees_its_blocks(
    text_edge: EdgeUnderTest, text_worker: TextWorker, *, stream: bool
) -> None:
    """Of a stream and of a call that waits for all of it: closing the connection is enough."""
    hold = hold_after(text_worker, 4)
    host, _, port = text_edge.settings.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    said = {"model": "chat", "prompt": "hello", "max_tokens": _LONG, "stream": stream, "n": 2}
    body = json.dumps(said).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    if stream:
        assert b"200" in await reader.readline()
    await until(lambda: not hold.is_set())
    writer.close()
    await until(lambda: not text_worker.served.traffic.in_flight)
    hold.set()
    await ended(text_worker, Outcome.CANCELLED)
    assert text_worker.runner.steps < _LONG // 2


async def test_a_callers_deadline(stub: Any, text_worker: TextWorker) -> None:
    """Before the first token and after: the status says so, and the blocks are free."""
    hold = hold_after(text_worker, 1)
    call = stub.Generate(service.GenerateRequest(**asking(tokens=_LONG)), timeout=2)
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await call
    assert told.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    hold.set()
    await ended(text_worker, Outcome.CANCELLED)
    hold = hold_after(text_worker, 4)
    request = service.GenerateStreamRequest(**asking(tokens=_LONG))
    stream = stub.GenerateStream(request, timeout=2)
    with pytest.raises(grpc.aio.AioRpcError) as told:
        async for _ in stream:
            pass
    assert told.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    hold.set()
    await ended(text_worker, Outcome.CANCELLED, 2)


async def test_an_endpoints_timeout_is_of_silence(
    text_edge: EdgeUnderTest, stub: Any, text_worker: TextWorker
) -> None:
    """A text may take longer, as long as pieces come; one that doesn't go on is ended, and frees its blocks."""
    text_edge.set_endpoint(Endpoint(name=ENDPOINT, targets=(Target(VERSION, 1),), timeout=1.5))
    await text_edge.in_sync()
    hold = text_worker.runner.hold
    assert hold is not None
    pause = threading.Event()
    text_worker.runner.on_step = lambda _: void(pause.wait(0.1))
    request = service.GenerateStreamRequest(**asking(tokens=30))
    texts = [m async for m in stub.GenerateStream(request, timeout=60)]
    assert texts[-1].usage.completion_tokens == 30
    pause.set()
    hold.clear()
    sent = json.dumps({"model": "chat", "prompt": "hello"}).encode()
    status, _, answer = await text_edge.http("POST", "/v1/completions", sent)
    assert status == 504
    assert json.loads(answer)["error"]["code"] == "timeout"
    stream = stub.GenerateStream(service.GenerateStreamRequest(**asking()), timeout=60)
    assert await stream.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    hold.set()
    await ended(text_worker, Outcome.CANCELLED, 2)


_REFUSED = [
    pytest.param({"model_name": "nope"}, "NOT_FOUND", "nope", id="no endpoint"),
    pytest.param({"model_version": "9"}, "NOT_FOUND", "9", id="no version"),
    pytest.param({"prompt": None}, "INVALID_ARGUMENT", "prompt", id="no prompt"),
    pytest.param({"prompt": generation.Prompt(text="")}, "INVALID_ARGUMENT", "empty", id="empty"),
    pytest.param(
        {"prompt": generation.Prompt(token_ids=generation.TokenIds(ids=[1, 256, -1]))},
        "INVALID_ARGUMENT",
        "ids[1]: 256; allowed: 0 to 255",
        id="unknown tokens",
    ),
    pytest.param(
        {"prompt": generation.Prompt(conversation=generation.Conversation())},
        "INVALID_ARGUMENT",
        "at least one message",
        id="no messages",
    ),
    pytest.param({"priority": 101}, "INVALID_ARGUMENT", "-100 to 100", id="priority"),
    pytest.param(
        {"sampling": generation.SamplingSettings(top_p=2, n=17)},
        "INVALID_ARGUMENT",
        "sampling.top_p",
        id="sampling",
    ),
]


async def test_what_is_refused(stub: Any) -> None:
    """The same of both methods, with the field's name."""
    for case in _REFUSED:
        fields, code, words = case.values
        given = asking() | fields  # type: ignore[operator] # pytest knows of objects only
        for method, request in (
            (stub.Generate, service.GenerateRequest(**given)),
            (stub.GenerateStream, service.GenerateStreamRequest(**given)),
        ):
            call = method(request, timeout=60)
            assert (await call.code()).name == code, case.id
            assert str(words) in await call.details(), case.id


async def test_calls_of_the_wrong_kind_say_which_is_right(
    text_edge: EdgeUnderTest, stub: Any
) -> None:
    """Tensors for a language model, text of a tensor model: FAILED_PRECONDITION."""
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await text_edge.stub.ModelInfer(oip.ModelInferRequest(model_name="chat"), timeout=60)
    assert told.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "language model" in (told.value.details() or "")
    request = service.GenerateStreamRequest(**(asking() | {"model_name": "digits"}))
    stream = stub.GenerateStream(request, timeout=60)
    assert await stream.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "ModelInfer" in await stream.details()


def void(_: object) -> None:
    """Drop a result."""
