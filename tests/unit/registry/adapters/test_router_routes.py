"""The router asked whether a version is routed, behind its real protocol."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from inferplane.router.v1 import router_service_pb2 as pb
from inferplane.router.v1 import router_service_pb2_grpc

from services.registry.adapters.router_routes import RouterRoutes, is_routed
from services.rpc.channel import connect
from services.rpc.names import EndpointName, VersionName
from services.rpc.server import RpcServer
from services.rpc.tls import PLAIN

E, V1 = EndpointName("m"), VersionName("m", "1")


def status(
    *,
    endpoint: str = "endpoints/m",
    version: str = "models/m/versions/1",
    ready: int = 1,
    in_sync: bool = True,
) -> pb.GetStatusResponse:
    found = pb.GetStatusResponse()
    found.envoys.add(node_id="edge", in_sync=in_sync)
    found.endpoints.add(name="endpoints/other")
    found.endpoints.add(name=endpoint).targets.add(version=version, ready_workers=ready)
    return found


@pytest.mark.parametrize(
    ("found", "routed"),
    [
        pytest.param(status(), True, id="an endpoint with a ready worker, acknowledged"),
        pytest.param(status(in_sync=False), False, id="not acknowledged by an Envoy"),
        pytest.param(status(ready=0), False, id="ready nowhere yet"),
        pytest.param(status(endpoint="endpoints/n"), False, id="endpoint not published yet"),
        pytest.param(status(version="models/m/versions/2"), False, id="still the version before"),
    ],
)
def test_what_is_routed(found: pb.GetStatusResponse, routed: bool) -> None:
    """Routed is what every Envoy has and a worker can answer."""
    assert is_routed(found, E, V1) is routed


class Router(router_service_pb2_grpc.RouterServiceServicer):
    """Answers what it was given, the last again and again."""

    def __init__(self, answers: list[pb.GetStatusResponse]) -> None:
        self.answers = answers
        self.asked = 0

    async def GetStatus(self, request: Any, context: Any) -> pb.GetStatusResponse:
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


@asynccontextmanager
async def routes(router: Router) -> AsyncIterator[RouterRoutes]:
    server = RpcServer(address="127.0.0.1:0", max_message_bytes=1 << 20)
    router_service_pb2_grpc.add_RouterServiceServicer_to_server(router, server.grpc)
    address = await server.start([])
    try:
        async with connect(address) as channel:
            yield RouterRoutes(channel)
    finally:
        await server.stop(0)


async def test_it_asks_until_it_is_routed() -> None:
    """The router is asked again until the published routes lead to the version."""
    router = Router([status(ready=0), status(in_sync=False), status()])
    async with routes(router) as asked:
        await asked.wait_routed(E, V1)
    assert router.asked == 3


async def test_without_an_envoy_there_is_nothing_to_wait_for() -> None:
    """Where no Envoy is connected nobody is routed anywhere."""
    router = Router([pb.GetStatusResponse()])
    async with routes(router) as asked:
        await asked.wait_routed(E, V1)
    assert router.asked == 1


async def test_several_routers_are_all_asked() -> None:
    """The router that answers first may have no Envoy, while another's has not acknowledged yet."""
    one, other = Router([pb.GetStatusResponse()]), Router([status(in_sync=False)] * 3 + [status()])
    async with AsyncExitStack() as stack:
        addresses = []
        for router in (one, other):
            server = RpcServer(address="127.0.0.1:0", max_message_bytes=1 << 20)
            router_service_pb2_grpc.add_RouterServiceServicer_to_server(router, server.grpc)
            addresses.append(await server.start([]))
            await server.set_health("", serving=True)
            stack.push_async_callback(server.stop, 0)
        channel = await stack.enter_async_context(connect(",".join(addresses), security=PLAIN))
        async with asyncio.timeout(60):
            while not (one.asked and other.asked):  # both are known
                await router_service_pb2_grpc.RouterServiceStub(channel).GetStatus(
                    pb.GetStatusRequest()
                )
        await RouterRoutes(channel, several=True).wait_routed(E, V1)
    assert other.asked >= 4


async def test_a_router_that_is_away_holds_nobody_up() -> None:
    """What was loaded is loaded; that nobody knows of its route is no error."""
    async with connect("unix:/nonexistent/router.sock") as channel:
        await RouterRoutes(channel).wait_routed(E, V1)
