"""The router asked whether a version is routed, behind its real protocol."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from inferplane.router.v1 import router_service_pb2 as pb
from inferplane.router.v1 import router_service_pb2_grpc

from services.registry.adapters.router_routes import RouterRoutes, is_routed
from services.rpc import peer_addresses
from services.rpc.each_peer import EachPeer
from services.rpc.names import EndpointName, VersionName
from services.rpc.server import RpcServer
from services.rpc.tcp_ports import free_port
from services.rpc.tls import PLAIN, Security
from tests.integration.rpc.names import Names

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
async def routes(*routers: Router, away: str = "") -> AsyncIterator[RouterRoutes]:
    async with AsyncExitStack() as stack:
        addresses = [away] if away else []
        for router in routers:
            server = RpcServer(address="127.0.0.1:0", max_message_bytes=1 << 20)
            router_service_pb2_grpc.add_RouterServiceServicer_to_server(router, server.grpc)
            addresses.append(await server.start([]))
            stack.push_async_callback(server.stop, 0)
        yield RouterRoutes(await stack.enter_async_context(EachPeer(",".join(addresses), PLAIN)))


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


async def test_each_of_many_routers_is_asked() -> None:
    """Most have no Envoy; the one whose Envoy has not acknowledged yet is waited for, whichever it is."""
    others = [Router([pb.GetStatusResponse()]) for _ in range(6)]
    late = Router([status(in_sync=False)] * 3 + [status()])
    async with routes(*others[:3], late, *others[3:]) as asked:
        await asked.wait_routed(E, V1)
    assert late.asked == 4
    assert [router.asked for router in others] == [1] * 6


async def test_a_router_that_is_away_holds_nobody_up() -> None:
    """What was loaded is loaded; that nobody knows of its route is no error, and the others are asked all the same."""
    async with routes(away="unix:/nonexistent/router.sock") as asked:
        await asked.wait_routed(E, V1)
    router = Router([status(ready=0), status()])
    async with routes(router, away=f"127.0.0.1:{free_port()}") as asked:
        await asked.wait_routed(E, V1)
    assert router.asked == 2


async def test_routers_are_those_that_the_name_leads_to_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name is looked up again: who is new is asked, who is gone is not, and where nobody is found nobody is."""
    first, second = Router([status()]), Router([status()])
    names = Names({})
    monkeypatch.setattr(peer_addresses, "look_up", names.look_up)
    monkeypatch.setattr(peer_addresses, "_AGAIN_SECONDS", 0.02)
    port = free_port()
    async with AsyncExitStack() as stack:
        for host, router in (("127.0.0.1", first), ("127.0.0.2", second)):
            server = RpcServer(address=f"{host}:{port}", max_message_bytes=1 << 20)
            router_service_pb2_grpc.add_RouterServiceServicer_to_server(router, server.grpc)
            await server.start([])
            stack.push_async_callback(server.stop, 0)
        security = Security(insecure_tcp=True)
        routers = await stack.enter_async_context(EachPeer(f"router.test:{port}", security))
        asked = RouterRoutes(routers)
        await asked.wait_routed(E, V1)
        assert (first.asked, second.asked) == (0, 0)
        for hosts, counts in ((["127.0.0.1"], (1, 0)), (["127.0.0.2"], (1, 1))):
            names.known = {"router.test": hosts}
            async with asyncio.timeout(60):
                while [peer.host for peer in routers.newest()] != hosts:  # noqa: ASYNC110 - names tell nobody of it
                    await asyncio.sleep(0.01)
            await asked.wait_routed(E, V1)
            assert (first.asked, second.asked) == counts
