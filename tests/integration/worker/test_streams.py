"""ModelStreamInfer and sequences of a real worker process, the same over both fronts."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from inference import open_inference_pb2 as oip

from tests.integration.worker import registry_stand_in
from tests.integration.worker.oip_client import Client, output
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.stream_calls import (
    PLAIN,
    SUM,
    X,
    answers,
    asked,
    of_sequence,
    open_stream,
    put_models,
)
from tests.integration.worker.worker_process import WorkerProcess, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", params=["auto", "grpcio"])
def front(request: pytest.FixtureRequest) -> str:
    """The fast front, then grpcio."""
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(front: str) -> AsyncIterator[WorkerProcess]:
    """One worker for all tests of a front."""
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        folder, registry = Path(name), Registry()
        address = f"unix:{folder}/registry.sock"
        async with registry_stand_in.serving(registry, address):
            await put_models(registry)
            async with running(folder, address, front=front) as worker:
                assert ('"front": "ngh2"' in worker.log.read_text()) == (front == "auto")
                await registry.until_state(PLAIN, "READY")
                await registry.until_state(SUM, "READY")
                yield worker


async def test_two_thousand_requests_are_answered_in_order(worker: WorkerProcess) -> None:
    """Sent without waiting; ids and values are those of the requests, in their order, and the end is OK."""
    stream = open_stream(worker)
    found = await answers(stream, [asked(n) for n in range(2000)])
    assert [a.infer_response.id for a in found] == [str(n) for n in range(2000)]
    assert all((output(a.infer_response) == 2 * n * X).all() for n, a in enumerate(found))
    assert await stream.code() is grpc.StatusCode.OK


async def test_errors_stay_in_the_stream(worker: WorkerProcess) -> None:
    """Each has its place, its request's id and a reason; the others are answered."""
    wrong = asked(1)
    wrong.inputs[0].name = "nobody"
    found = await answers(open_stream(worker), [asked(0), wrong, asked(2, "nobody"), asked(3)])
    assert [bool(a.error_message) for a in found] == [False, True, True, False]
    assert [a.infer_response.id for a in found] == ["0", "1", "2", "3"]
    assert "'nobody' is not an input" in found[1].error_message
    said = [a.infer_response.parameters["error_code"].string_param for a in found[1:3]]
    assert said == ["INVALID_ARGUMENT", "NOT_FOUND"]
    assert found[2].infer_response.parameters["error_reason"].string_param == "MODEL_NOT_FOUND"


async def test_an_error_ends_the_stream_if_the_caller_wants_it_so(worker: WorkerProcess) -> None:
    """With `triton_grpc_error`: what came before is answered, the status is the error's."""
    stream = open_stream(worker, ("triton_grpc_error", "true"))
    wrong = asked(1)
    wrong.inputs[0].name = "nobody"
    for message in (asked(0), wrong):
        await stream.write(message)
    assert (await stream.read()).infer_response.id == "0"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "'nobody' is not an input" in (caught.value.details() or "")


async def test_final_responses_are_marked_when_asked_for(worker: WorkerProcess) -> None:
    """Every answer is the last of its request."""
    found = await answers(
        open_stream(worker), [asked(0, triton_enable_empty_final_response=True), asked(1)]
    )
    marked = ["triton_final_response" in a.infer_response.parameters for a in found]
    assert marked == [True, False]
    assert found[0].infer_response.parameters["triton_final_response"].bool_param


async def test_a_stream_is_of_the_endpoint_that_it_was_routed_for(worker: WorkerProcess) -> None:
    """A later message for another one is told so, and the stream goes on."""
    stream = open_stream(
        worker, ("x-inferplane-version", PLAIN), ("x-inferplane-endpoint", "front-door")
    )
    messages = [asked(0, "front-door"), asked(1, "sum"), asked(2, "front-door")]
    found = await answers(stream, messages)
    assert [bool(a.error_message) for a in found] == [False, True, False]
    assert "'sum' in the body, but the call was routed for 'front-door'" in found[1].error_message
    assert "open another one" in found[1].error_message


async def test_a_stream_without_requests_ends_well(worker: WorkerProcess) -> None:
    """OK, and no answer."""
    stream = open_stream(worker)
    assert await answers(stream, []) == []
    assert await stream.code() is grpc.StatusCode.OK


async def test_bytes_that_are_no_request_are_an_error_in_the_stream(worker: WorkerProcess) -> None:
    """The stream goes on after it."""
    raw: Any = worker.channel.stream_stream(
        "/inference.GRPCInferenceService/ModelStreamInfer",
        response_deserializer=oip.ModelStreamInferResponse.FromString,
    )
    stream = raw(timeout=30)
    good_one = asked(7).SerializeToString()
    found = await answers(stream, [b"\xff\xff\xff", good_one])  # type: ignore[list-item] # bytes
    assert [bool(a.error_message) for a in found] == [True, False]
    assert found[1].infer_response.id == "7"


async def test_sequences_on_one_stream(worker: WorkerProcess) -> None:
    """Interleaved ones keep their own sums, sent without waiting; ids may be numbers or texts."""
    messages, expected = [], []
    sums: dict[int | str, int] = {}
    for n in range(60):
        sequence = (5, "5", 2**62)[n % 3]
        ends = ["start"] * (sequence not in sums) + ["end"] * (n >= 57)
        sums[sequence] = sums.get(sequence, 0) + n
        messages.append(of_sequence(n, sequence, *ends))
        expected.append(sums[sequence])
    found = await answers(open_stream(worker), messages)
    assert not [a.error_message for a in found if a.error_message]
    assert [output(a.infer_response)[0, 0] for a in found] == expected
    assert all([t.name for t in a.infer_response.outputs] == ["total"] for a in found)


async def test_different_sequences_share_batches(worker: WorkerProcess, front: str) -> None:
    """Three rounds of 200 sequences: every sum is right; what comes together is computed together.

    (By grpcio messages come one by one, and a model as quick as this one has answered each before the next.)
    """
    client, asked_for = Client(worker.channel), oip.ModelStatisticsRequest(name="sum")
    (before,) = (await client.oip.ModelStatistics(asked_for)).model_stats
    messages = [
        of_sequence(n, f"shared {n}", *(["start"] * (step == 0)), *(["end"] * (step == 2)))
        for step in range(3)
        for n in range(200)
    ]
    found = await answers(open_stream(worker), messages)
    sums = [output(a.infer_response)[0, 0] for a in found]
    assert sums == [n * (step + 1) for step in range(3) for n in range(200)]
    (after,) = (await client.oip.ModelStatistics(asked_for)).model_stats
    assert after.inference_count - before.inference_count == 600
    assert after.execution_count - before.execution_count < (300 if front == "auto" else 601)


async def test_sequences_by_single_calls(worker: WorkerProcess) -> None:
    """State outlives calls; it isn't in the metadata; without a start, an id or after the end a call is refused."""
    client = Client(worker.channel)
    said = await client.oip.ModelMetadata(oip.ModelMetadataRequest(name="sum"))
    assert ([t.name for t in said.inputs], [t.name for t in said.outputs]) == (["x"], ["total"])
    for n, ends, total in ((1, ("start",), 1), (2, (), 3), (3, ("end",), 6)):
        answer = await client.oip.ModelInfer(of_sequence(n, 9, *ends))
        assert (output(answer) == total * X).all()
    for message, code, words in (
        (of_sequence(1, 9), grpc.StatusCode.FAILED_PRECONDITION, "sequence 9 has not begun"),
        (asked(1, "sum"), grpc.StatusCode.INVALID_ARGUMENT, "sequence_id: missing"),
        (of_sequence(1, "é" * 65, "start"), grpc.StatusCode.INVALID_ARGUMENT, "128 bytes"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.oip.ModelInfer(message)
        assert caught.value.code() is code
        assert words in (caught.value.details() or "")


async def test_tenants_have_sequences_of_their_own(worker: WorkerProcess) -> None:
    """The trusted header tells them apart, on streams and calls alike."""
    client = Client(worker.channel)
    header = "x-inferplane-project"
    await client.oip.ModelInfer(of_sequence(1, 9, "start"), metadata=((header, "a"),))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.oip.ModelInfer(of_sequence(1, 9), metadata=((header, "b"),))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    (found,) = await answers(open_stream(worker, (header, "a")), [of_sequence(1, 9)])
    assert output(found.infer_response)[0, 0] == 2


async def test_a_caller_that_sends_and_does_not_read_is_held_back(worker: WorkerProcess) -> None:
    """Its requests are not all taken; the worker answers others, and everything once it reads."""
    stream = open_stream(worker)
    total, sent = 3000, 0
    message = asked(1)
    message.id = "i" * 32768  # comes back: 96 MiB each way

    async def send() -> None:
        nonlocal sent
        for _ in range(total):
            await stream.write(message)
            sent += 1
        await stream.done_writing()

    sending = asyncio.create_task(send())
    client = Client(worker.channel)
    before = -1
    while sent > before:  # until nothing more is taken
        before = sent
        for _ in range(20):
            assert (output(await client.infer("m", x=X)) == 2 * X).all()
    assert sent < total
    read = 0
    async for answer in stream:
        assert not answer.error_message
        read += 1
    await sending
    assert read == total
