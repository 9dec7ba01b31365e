"""Builds the router from its settings and runs it until SIGTERM or SIGINT."""

import asyncio
import sys
import time
from contextlib import AsyncExitStack

import structlog
from envoy.service.discovery.v3.ads_pb2_grpc import (
    add_AggregatedDiscoveryServiceServicer_to_server,
)
from inferplane.router.v1.router_service_pb2_grpc import add_RouterServiceServicer_to_server

from services.router.adapters.other_routers import OtherRouters
from services.router.adapters.policy_watch import PolicyWatch
from services.router.adapters.registry_watch import RegistryWatch
from services.router.drivers.board import Board
from services.router.drivers.publisher import Publisher
from services.router.drivers.roster import Roster
from services.router.metrics import HEARS, KEEPS_CONCURRENCY
from services.router.resources.build import ResourceBuilder
from services.router.servicers import edge_services
from services.router.servicers.ads import AdsServicer
from services.router.servicers.router_service import RouterServicer
from services.router.settings import RouterSettings
from services.router.worker_feed import settle_seconds, worker_feed
from services.rpc import address, channel, peers, settings, telemetry
from services.rpc.each_peer import EachPeer
from services.rpc.peer_kind import PeerKind
from services.rpc.server import RpcServer, stop_requested

_log = structlog.get_logger(__name__)

_STREAM_GRACE_SECONDS = (
    0.1  # Envoy's streams never end by themselves; a longer wait would only delay the stop
)


class SystemClock:
    """This machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


async def run(config: RouterSettings) -> None:
    """Serve until asked to stop."""
    clock, board = SystemClock(), Board()
    security = config.security()
    roster = Roster(clock.wall)
    publisher = Publisher(
        board=board,
        builder=ResourceBuilder(config.edge()),
        clock=clock,
        lease=settle_seconds(config),
    )
    server = RpcServer(
        address=config.router_address,
        max_message_bytes=config.max_message_bytes,
        security=security,
        guard=peers.guard(config.router_address, security, {PeerKind.EDGE, PeerKind.SERVICE}),
    )
    add_AggregatedDiscoveryServiceServicer_to_server(AdsServicer(board, roster, clock), server.grpc)
    stop = stop_requested()
    async with AsyncExitStack() as stack:
        others = await _other_routers(config, stack)
        add_RouterServiceServicer_to_server(
            RouterServicer(
                publisher,
                board,
                roster,
                address=config.router_address,
                ask_others=None if others is None else others.ask,
            ),
            server.grpc,
        )
        registry = await stack.enter_async_context(
            channel.connect(config.registry_address, security=security)
        )
        workers = await worker_feed(config, security, publisher, stack)
        metering = await stack.enter_async_context(
            channel.connect(config.metering_address, security=security)
        )
        _measure_peers(publisher)
        telemetry.serve_metrics(config.metrics_address)
        await server.start(edge_services.NAMES)
        stack.push_async_callback(server.stop, min(config.drain_seconds, _STREAM_GRACE_SECONDS))
        await server.set_health("", serving=True)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(publisher.run()),
                tasks.create_task(RegistryWatch(registry, publisher).run()),
                tasks.create_task(workers.run()),
            ]
            if config.edge_auth == "required":
                _say_what_is_kept(has_module=config.edge_module)
                running.append(tasks.create_task(PolicyWatch(metering, publisher).run()))
            await stop.wait()
            for task in running:
                task.cancel()


async def _other_routers(config: RouterSettings, stack: AsyncExitStack) -> OtherRouters | None:
    """All routers, where they may be several."""
    routers = config.edge().router_address
    if not address.are_several(routers):
        return None
    return OtherRouters(await stack.enter_async_context(EachPeer(routers, config.security())))


def _measure_peers(publisher: Publisher) -> None:
    HEARS.labels("registry").set_function(lambda: publisher.registry_connected)
    HEARS.labels("discovery").set_function(lambda: publisher.discovery_connected)
    HEARS.labels("metering").set_function(lambda: publisher.metering_connected)


def _say_what_is_kept(*, has_module: bool) -> None:
    KEEPS_CONCURRENCY.set(has_module)
    if not has_module:
        _log.warning(
            "limits of requests in flight are not kept: Envoy has no module of ours; requests a second are"
        )


def main() -> None:
    """Read settings and run; a bad value ends the process with its name."""
    try:
        config = settings.load(RouterSettings)
    except settings.SettingsError as error:
        sys.exit(str(error))
    telemetry.configure_logs(service="router", level=config.log_level, style=config.log_style)
    asyncio.run(run(config))


if __name__ == "__main__":
    main()
