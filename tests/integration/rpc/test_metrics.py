"""Call metrics on a real server: each method's calls by the code that the caller saw."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from inferplane.registry.v1 import model_service_pb2 as pb
from inferplane.registry.v1 import watch_service_pb2 as watch_pb
from inferplane.registry.v1.model_service_pb2_grpc import (
    ModelServiceServicer,
    ModelServiceStub,
    add_ModelServiceServicer_to_server,
)
from inferplane.registry.v1.watch_service_pb2_grpc import (
    WatchServiceServicer,
    WatchServiceStub,
    add_WatchServiceServicer_to_server,
)
from prometheus_client import CollectorRegistry

from services.rpc.channel import connect
from services.rpc.errors import NotFoundError, OutOfRangeError
from services.rpc.metrics import MetricsInterceptor
from services.rpc.server import RpcServer
from tests.integration.router.waiting import until

MODELS, WATCHES = "/inferplane.registry.v1.ModelService", "/inferplane.registry.v1.WatchService"


class Models(ModelServiceServicer):
    """Ends each method in its own way."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()

    async def UpdateModel(self, request: Any, context: Any) -> pb.UpdateModelResponse:
        self.entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def GetModel(self, request: Any, context: Any) -> pb.GetModelResponse:
        return pb.GetModelResponse()

    async def DeleteModel(self, request: Any, context: Any) -> pb.DeleteModelResponse:
        raise NotFoundError("no")

    async def CreateModel(self, request: Any, context: Any) -> pb.CreateModelResponse:
        raise KeyError("unforeseen")

    async def ListModels(self, request: Any, context: Any) -> pb.ListModelsResponse:
        await context.abort(grpc.StatusCode.DATA_LOSS, "gone")
        raise AssertionError


class Watches(WatchServiceServicer):
    """Sends one response, then fails if asked to."""

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[watch_pb.WatchResponse]:
        yield watch_pb.WatchResponse()
        if request.after_revision == 1:
            raise OutOfRangeError("no")
        if request.after_revision:
            await asyncio.Event().wait()


@asynccontextmanager
async def counted(
    metrics: CollectorRegistry, models: Models
) -> AsyncIterator[tuple[RpcServer, grpc.aio.Channel]]:
    """A server that counts, and a channel to it."""
    with tempfile.TemporaryDirectory(prefix="ip-") as folder:
        server = RpcServer(
            address=f"unix:{folder}/s.sock",
            max_message_bytes=1 << 20,
            interceptors=[MetricsInterceptor(metrics)],
        )
        add_ModelServiceServicer_to_server(models, server.grpc)
        add_WatchServiceServicer_to_server(Watches(), server.grpc)
        address = await server.start([])
        async with connect(address) as channel:
            yield server, channel
        await server.stop(0)


@pytest.fixture
async def registry() -> AsyncIterator[tuple[CollectorRegistry, grpc.aio.Channel]]:
    metrics = CollectorRegistry()
    async with counted(metrics, Models()) as (_, channel):  # type: ignore[abstract] # only what is called
        yield metrics, channel


def count(metrics: CollectorRegistry, method: str, code: str) -> float | None:
    return metrics.get_sample_value("inferplane_rpc_calls_total", {"method": method, "code": code})


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("GetModel", "OK"),
        ("DeleteModel", "NOT_FOUND"),
        ("CreateModel", "INTERNAL"),
        ("ListModels", "DATA_LOSS"),
    ],
)
async def test_unary_calls(
    registry: tuple[CollectorRegistry, grpc.aio.Channel], method: str, code: str
) -> None:
    """The counted code is the one that the caller sees, however the call ends."""
    metrics, channel = registry
    call = getattr(ModelServiceStub(channel), method)
    seen = "OK"
    try:
        await call(getattr(pb, f"{method}Request")())
    except grpc.aio.AioRpcError as error:
        seen = error.code().name
    assert seen == code
    # An abort reaches the caller before the handler is left and counted.
    await until(lambda: count(metrics, f"{MODELS}/{method}", code) == 1)
    duration = "inferplane_rpc_duration_seconds_count"
    assert metrics.get_sample_value(duration, {"method": f"{MODELS}/{method}"}) == 1


async def test_streams(registry: tuple[CollectorRegistry, grpc.aio.Channel]) -> None:
    """Streams count when they end; grpcio's own servicers pass through too."""
    metrics, channel = registry
    stub = WatchServiceStub(channel)
    assert len([r async for r in stub.Watch(watch_pb.WatchRequest())]) == 1
    with pytest.raises(grpc.aio.AioRpcError):
        assert [r async for r in stub.Watch(watch_pb.WatchRequest(after_revision=1))]
    assert count(metrics, f"{WATCHES}/Watch", "OK") == 1
    assert count(metrics, f"{WATCHES}/Watch", "OUT_OF_RANGE") == 1
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    async for response in watch:
        assert response.status
        watch.cancel()
        break


async def test_calls_that_the_server_ends() -> None:
    """A call and a stream that outlast the grace time count once each, with the code that their callers see."""
    metrics, models = CollectorRegistry(), Models()  # type: ignore[abstract] # only what is called
    async with counted(metrics, models) as (server, channel):
        call = ModelServiceStub(channel).UpdateModel(pb.UpdateModelRequest())
        waiting = asyncio.ensure_future(call.code())
        stream = WatchServiceStub(channel).Watch(watch_pb.WatchRequest(after_revision=2))
        await stream.read()
        await models.entered.wait()
        await server.stop(0)
        assert await waiting is await stream.code() is grpc.StatusCode.UNAVAILABLE
    for method in (f"{MODELS}/UpdateModel", f"{WATCHES}/Watch"):
        assert count(metrics, method, "UNAVAILABLE") == 1
        assert count(metrics, method, "CANCELLED") is None
