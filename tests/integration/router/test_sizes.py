"""Message sizes: up to the limit all passes, beyond it the answer names the limit."""

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from inference.open_inference_pb2_grpc import GRPCInferenceServiceStub

from services.router.domain.topology import Endpoint, Target
from tests.integration.router.edge import DIGITS, V1, EdgeUnderTest

MIB = 1 << 20
LIMIT = "larger than the limit of 67108864 bytes"


@pytest.fixture
async def sized(edge: EdgeUnderTest) -> AsyncIterator[EdgeUnderTest]:
    """One worker, and a client that sends whatever it is given."""
    worker = await edge.add_worker("w", V1)
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    edge.set_workers({worker.address: {V1}})
    await edge.in_sync()
    unlimited = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(edge.settings.address, options=unlimited) as channel:
        edge.stub = GRPCInferenceServiceStub(channel)
        yield edge


async def infer(edge: EdgeUnderTest, size: int, **kw: Any) -> int:
    response = await edge.infer(fields={"raw_input_contents": [bytes(size)]}, timeout=30, **kw)
    return int(response.parameters["bytes"].int64_param)


@pytest.mark.parametrize("size", [10_000_000, 60 * MIB])
async def test_large_messages_pass(sized: EdgeUnderTest, size: int) -> None:
    """10 MB and 60 MiB arrive whole, by gRPC and by REST."""
    assert await infer(sized, size) == size
    status, _, answer = await sized.http("POST", "/v2/models/digits/infer", bytes(size))
    assert status == 200
    assert f'"size": {size}'.encode() in answer


async def test_larger_messages_are_refused_naming_the_limit(sized: EdgeUnderTest) -> None:
    """65 MiB is RESOURCE_EXHAUSTED by gRPC and 413 by REST, and the next call is served."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await infer(sized, 65 * MIB)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert LIMIT in str(raised.value.details())
    status, _, answer = await sized.http("POST", "/v2/models/digits/infer", bytes(65 * MIB))
    assert status == 413
    assert LIMIT in json.loads(answer)["error"]
    assert await infer(sized, 1) == 1


async def test_compressed_messages_are_refused_clearly(sized: EdgeUnderTest) -> None:
    """A compressed message is UNIMPLEMENTED with the reason, as gRPC's compression document asks."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await infer(sized, 10_000, compression=grpc.Compression.Gzip)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "grpc-encoding identity" in str(raised.value.details())
