"""The shared server over a real unix socket: statuses, health, reflection, graceful stop."""

import asyncio
import stat
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from inferplane.discovery.v1 import discovery_service_pb2 as discovery
from inferplane.discovery.v1 import discovery_service_pb2_grpc as discovery_grpc
from inferplane.discovery.v1 import worker_pb2

from services.rpc.channel import connect
from services.rpc.completion import to_completion
from services.rpc.errors import FieldViolation, InvalidArgumentError, UnavailableError
from services.rpc.interceptor import DETAILS_KEY
from services.rpc.server import RpcServer
from tests.integration.router.waiting import until

_LARGE = "x" * 100_000
SERVICE = "inferplane.discovery.v1.DiscoveryService"


class _Sent:
    """Messages of a stream, until its reader holds it up."""

    def __init__(self) -> None:
        self.messages = 0

    async def until_held_up(self) -> None:
        """No message has gone for a while, though there always is another."""
        seen = 0
        while not seen or seen != self.messages:
            seen = self.messages
            await asyncio.sleep(0.2)


class _Servicer(discovery_grpc.DiscoveryServiceServicer):
    """Fails in each of the ways that a servicer can."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.ended = asyncio.Event()
        self.ended.set()
        self.running = 0
        self.closed = 0  # streams
        self.working = asyncio.Event()
        self.completed = False
        self.flood: _Sent | None = None  # told of each message of streams without end

    async def RegisterWorker(self, request: Any, context: Any) -> Any:
        raise InvalidArgumentError.of_fields(
            [FieldViolation("worker.name", "is empty"), FieldViolation("ttl", "is negative")],
            given="-1",
        )

    async def DeregisterWorker(self, request: Any, context: Any) -> Any:
        if not request.name:
            raise ZeroDivisionError("a secret")
        await to_completion(self._work())
        return discovery.DeregisterWorkerResponse()

    async def _work(self) -> None:
        self.working.set()
        await self.release.wait()
        self.completed = True

    async def ListWorkers(self, request: Any, context: Any) -> Any:
        self.entered.set()
        self.running += 1
        await self.release.wait()
        return discovery.ListWorkersResponse()

    async def WatchWorkers(self, request: Any, context: Any) -> Any:
        try:
            yield discovery.WatchWorkersResponse()
            while self.flood is not None:
                yield discovery.WatchWorkersResponse(workers=[worker_pb2.Worker(address=_LARGE)])
                self.flood.messages += 1
            await self.ended.wait()
        finally:
            self.closed += 1
        raise UnavailableError("try elsewhere", reason="DRAINING", retry_after=1.5)


Served: TypeAlias = tuple[RpcServer, _Servicer, grpc.aio.Channel]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A running server with the failing servicer and a channel to it."""
    address = f"unix:{tmp_path}/run/s.sock"
    server = RpcServer(address=address, max_message_bytes=1 << 20)
    servicer = _Servicer()
    discovery_grpc.add_DiscoveryServiceServicer_to_server(servicer, server.grpc)
    await server.start([SERVICE])
    async with connect(address) as channel:
        yield server, servicer, channel
    await server.stop(0)


def _details(error: grpc.aio.AioRpcError) -> list[Any]:
    packed = dict(error.trailing_metadata())[DETAILS_KEY]
    status = status_pb2.Status.FromString(packed)
    assert status.message == error.details()
    kinds = {
        "ErrorInfo": error_details_pb2.ErrorInfo,
        "BadRequest": error_details_pb2.BadRequest,
        "RetryInfo": error_details_pb2.RetryInfo,
    }
    unpacked: list[Any] = []
    for box in status.details:
        message = kinds[box.type_url.rpartition(".")[2]]()
        assert box.Unpack(message)
        unpacked.append(message)
    return unpacked


async def test_domain_error_becomes_status_with_details(served: Served) -> None:
    """A domain error arrives as its code with one ErrorInfo and all field violations."""
    stub = discovery_grpc.DiscoveryServiceStub(served[2])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.RegisterWorker(discovery.RegisterWorkerRequest())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    info, bad = _details(caught.value)
    assert (info.reason, info.domain, info.metadata["given"]) == (
        "INVALID_FIELD",
        "inferplane",
        "-1",
    )
    assert [v.field for v in bad.field_violations] == ["worker.name", "ttl"]


async def test_unknown_error_becomes_internal_without_its_text(served: Served) -> None:
    """A bug is INTERNAL, and its text stays in the server's log."""
    stub = discovery_grpc.DiscoveryServiceStub(served[2])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.DeregisterWorker(discovery.DeregisterWorkerRequest())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value.details())


@pytest.mark.parametrize("method", ["RegisterWorker", "WatchWorkers"])
async def test_bytes_that_are_no_message_are_the_callers_fault(served: Served, method: str) -> None:
    """A truncated message is INVALID_ARGUMENT in our words, for calls and for streams."""
    start: Any = served[2].unary_stream(f"/{SERVICE}/{method}")
    call = start(b"\x0a\x7f")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert _details(caught.value)[0].reason == "UNDECODABLE_MESSAGE"


async def test_headers_as_large_as_the_edge_takes(served: Served) -> None:
    """Headers of 60 KiB arrive every time; gRPC's own limit refuses some from 8 KiB on."""
    stub = discovery_grpc.DiscoveryServiceStub(served[2])
    for _ in range(20):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.DeregisterWorker(
                discovery.DeregisterWorkerRequest(), metadata=(("x-large", "x" * 60 * 1024),)
            )
        assert caught.value.code() is grpc.StatusCode.INTERNAL  # the servicer's own answer


async def test_stream_fails_with_status_after_its_messages(served: Served) -> None:
    """A stream delivers what it had, then ends with the error's code and retry delay."""
    call = discovery_grpc.DiscoveryServiceStub(served[2]).WatchWorkers(
        discovery.WatchWorkersRequest()
    )
    assert await call.read() == discovery.WatchWorkersResponse()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    retry = _details(caught.value)[1]
    assert retry.retry_delay == Duration(seconds=1, nanos=500_000_000)


async def test_health_and_reflection(served: Served) -> None:
    """Health is NOT_SERVING until set, watched changes arrive, and reflection lists the services."""
    server, _, channel = served
    health = health_pb2_grpc.HealthStub(channel)
    watch = health.Watch(health_pb2.HealthCheckRequest(service=""))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    await server.set_health("", serving=True)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = await call.read()
    assert SERVICE in [s.name for s in listed.list_services_response.service]
    await call.done_writing()


async def test_watchers_of_health_hear_of_changes_after_another_has_gone(served: Served) -> None:
    """Whoever watches a server is told when it serves, also if others who watched it have gone before."""
    server, _, channel = served
    health = health_pb2_grpc.HealthStub(channel)
    stays, goes = (health.Watch(health_pb2.HealthCheckRequest(service="")) for _ in range(2))
    for watch in (stays, goes):
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    goes.cancel()
    await health.Check(health_pb2.HealthCheckRequest(service=""))  # the server has heard it by then
    await server.set_health("", serving=True)
    assert (await stays.read()).status == health_pb2.HealthCheckResponse.SERVING


async def test_health_of_what_is_not_here(served: Served) -> None:
    """A service of another name is NOT_FOUND; whoever watches one is told when it comes."""
    server, _, channel = served
    health = health_pb2_grpc.HealthStub(channel)
    asked = health_pb2.HealthCheckRequest(service="later")
    refused = await _refused(health.Check(asked))
    assert refused.code() is grpc.StatusCode.NOT_FOUND
    watch = health.Watch(asked)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    await server.set_health("later", serving=True)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING


async def test_socket_is_private(served: Served, tmp_path: Path) -> None:
    """The socket and its folder are closed to other users."""
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run" / "s.sock").stat().st_mode) == 0o600


async def test_streams_that_end_with_the_server_are_told_why(served: Served) -> None:
    """Calls that are ended right before the server stops get their status, not a lost connection."""
    server, servicer, channel = served
    servicer.ended.clear()
    stub = discovery_grpc.DiscoveryServiceStub(channel)
    calls = [stub.WatchWorkers(discovery.WatchWorkersRequest()) for _ in range(50)]
    for call in calls:
        await call.read()
    servicer.ended.set()
    stopping = asyncio.ensure_future(server.stop(30))
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert _details(caught.value)[0].reason == "DRAINING"
    await stopping


async def test_stop_lets_running_calls_finish(served: Served) -> None:
    """A call that runs when the server stops is answered; one that comes after is UNAVAILABLE."""
    server, servicer, channel = served
    stub = discovery_grpc.DiscoveryServiceStub(channel)
    call = stub.ListWorkers(discovery.ListWorkersRequest())
    waiter = asyncio.ensure_future(call)
    await servicer.entered.wait()
    stopping = asyncio.ensure_future(server.stop(30))
    servicer.release.set()
    assert await waiter == discovery.ListWorkersResponse()
    await stopping
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ListWorkers(discovery.ListWorkersRequest(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def _refused(work: Awaitable[Any]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await work
    return caught.value


async def test_calls_that_outlast_the_grace_time_are_told_to_try_again(served: Served) -> None:
    """A call, a stream, one of grpcio's own and one that must run to its completion hear UNAVAILABLE, all at once."""
    server, servicer, channel = served
    stub, health = (
        discovery_grpc.DiscoveryServiceStub(channel),
        health_pb2_grpc.HealthStub(channel),
    )
    servicer.ended.clear()
    watches = [stub.WatchWorkers(discovery.WatchWorkersRequest()) for _ in range(10)]
    told = health.Watch(health_pb2.HealthCheckRequest(service=""))
    for stream in (*watches, told):
        await stream.read()
    waiting = [stub.ListWorkers(discovery.ListWorkersRequest()) for _ in range(10)]
    completed = stub.DeregisterWorker(discovery.DeregisterWorkerRequest(name="workers/whole"))
    calls: list[Awaitable[Any]] = [*waiting, completed]
    refusals = [asyncio.ensure_future(_refused(call)) for call in calls]
    await until(lambda: servicer.running == len(waiting))
    await servicer.working.wait()
    stopping = asyncio.ensure_future(server.stop(0.05))
    errors = [await _refused(_end_of(stream)) for stream in (*watches, told)]
    servicer.release.set()
    errors += await asyncio.gather(*refusals)
    await stopping
    assert {error.code() for error in errors} == {grpc.StatusCode.UNAVAILABLE}
    assert {error.details() for error in errors} == {"the server is stopping; try again"}
    assert {_details(error)[0].reason for error in errors} == {"STOPPING"}
    assert servicer.closed == len(watches)
    assert servicer.completed


async def _end_of(stream: Any) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


async def test_a_caller_who_does_not_read_does_not_hold_up_the_stop(served: Served) -> None:
    """A stream whose messages wait for its reader is cut off; the server stops all the same."""
    server, servicer, channel = served
    stub = discovery_grpc.DiscoveryServiceStub(channel)
    sent = servicer.flood = _Sent()
    call = stub.WatchWorkers(discovery.WatchWorkersRequest())
    await call.read()
    await sent.until_held_up()
    async with asyncio.timeout(60):
        await server.stop(0.05)
    assert servicer.closed == 1
    call.cancel()


async def test_calls_that_lie_before_a_server_that_stops_are_begun(served: Served) -> None:
    """Of calls that have come together, those that the server had not begun when it was to stop are answered too."""
    server, servicer, channel = served
    stub = discovery_grpc.DiscoveryServiceStub(channel)
    calls = [
        asyncio.ensure_future(stub.ListWorkers(discovery.ListWorkersRequest())) for _ in range(10)
    ]
    await servicer.entered.wait()
    stopping = asyncio.ensure_future(server.stop(30))
    servicer.release.set()
    assert await asyncio.gather(*calls) == [discovery.ListWorkersResponse()] * 10
    await stopping
