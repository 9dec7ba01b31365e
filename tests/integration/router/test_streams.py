"""Streams of calls through a real Envoy: routed by their first message, not ended by silence, not tried twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from inference import open_inference_pb2 as oip

from services.router.domain.catalog import CatalogUpdate, VersionChange
from services.router.domain.topology import Endpoint, Target
from tests.integration.router.edge import DIGITS, V1, V2, EdgeUnderTest

_STALL = 0.5  # seconds


@pytest.fixture
async def served(folder: Path) -> AsyncIterator[EdgeUnderTest]:
    """An endpoint with two versions on two workers, whose calls may last two seconds."""
    edge = await EdgeUnderTest.start(folder, stall_seconds=_STALL)
    ready = {}
    for name in ("a", "b"):
        worker = await edge.add_worker(name, V1, V2)
        ready[worker.address] = {V1, V2}
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),), timeout=2.0))
    edge.set_workers(ready)
    await edge.in_sync()
    yield edge
    await edge.stop()


def request(name: str = "digits", **fields: Any) -> oip.ModelInferRequest:
    return oip.ModelInferRequest(model_name=name, **fields)


async def said(stream: Any, message: oip.ModelInferRequest) -> oip.ModelInferResponse:
    """The answer to one message."""
    await stream.write(message)
    answer = await stream.read()
    assert answer is not grpc.aio.EOF
    response: oip.ModelInferResponse = answer.infer_response
    return response


async def silence(seconds: float) -> None:
    """That the time passes is what these tests are about."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


async def test_silence_ends_no_stream(served: EdgeUnderTest) -> None:
    """Before the first message and between two: longer than a stalled request may take, and than a call may last."""
    stream = served.stub.ModelStreamInfer(timeout=30)
    first = asyncio.ensure_future(stream.initial_metadata())  # sends the headers
    await silence(3 * _STALL)
    one = await said(stream, request(id="1"))
    await first
    assert one.parameters["endpoint"].string_param == "digits"
    assert one.model_version == "models/digits/versions/1"
    await silence(2.5)
    two = await said(stream, request(id="2"))
    assert (two.id, two.parameters["worker"]) == ("2", one.parameters["worker"])
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_streams_own_deadline_ends_it(served: EdgeUnderTest) -> None:
    """Before the first message and after an answer."""
    silent = served.stub.ModelStreamInfer(timeout=0.3)
    assert await silent.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    stream = served.stub.ModelStreamInfer(timeout=4)  # the answer must have come by then
    await said(stream, request())
    assert await stream.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_no_endpoint_no_stream(served: EdgeUnderTest) -> None:
    """NOT_FOUND by name; a stream without any message is refused too, and no worker hears of either."""
    stream = served.stub.ModelStreamInfer(timeout=60)
    await stream.write(request("nobody"))
    assert await stream.code() is grpc.StatusCode.NOT_FOUND
    assert "nobody" in await stream.details()
    empty = served.stub.ModelStreamInfer(timeout=60)
    await empty.done_writing()
    assert await empty.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not sum(worker.calls.total() for worker in served.workers)


async def test_a_dead_worker_gets_no_stream(served: EdgeUnderTest) -> None:
    """Before the first answer a stream is tried elsewhere; afterwards its end is told, and the next one works."""
    first, second = served.workers
    streams = []
    for _ in range(8):
        stream = served.stub.ModelStreamInfer(timeout=60)
        streams.append((stream, await said(stream, request())))
    await first.stop()
    for stream, answer in streams:
        if answer.parameters["worker"].string_param == second.name:
            assert (await said(stream, request(id="again"))).id == "again"
        else:
            assert await stream.code() is not grpc.StatusCode.OK
    for _ in range(20):
        stream = served.stub.ModelStreamInfer(timeout=60)
        assert (await said(stream, request())).parameters["worker"].string_param == second.name
        stream.cancel()


async def test_a_pinned_version_counts_for_streams(served: EdgeUnderTest) -> None:
    """`model_version` of the first message."""
    served.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1), Target(V2, 1))))
    await served.in_sync()
    for version in ("1", "2"):
        stream = served.stub.ModelStreamInfer(timeout=60)
        answer = await said(stream, request(model_version=version))
        assert answer.model_version == f"models/digits/versions/{version}"
        stream.cancel()


async def test_calls_of_a_sequence_reach_one_worker(served: EdgeUnderTest) -> None:
    """By the header x-sequence-id, and one version of a split; without state it means nothing."""
    served.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1), Target(V2, 1))))
    changes = tuple(VersionChange(version, stateful=True) for version in (V1, V2))
    served.publisher.hear_registry(CatalogUpdate(changes=changes, synced=True))
    await served.in_sync()
    places = set()
    for sequence in range(64):
        found = set()
        for _ in range(3):
            answer = await served.infer(metadata=(("x-sequence-id", str(sequence)),))
            found.add((answer.parameters["worker"].string_param, answer.model_version))
        assert len(found) == 1
        places |= found
    assert (
        len(places) == 4
    )  # 64 sequences leave no worker and no version out, wherever they hash to
