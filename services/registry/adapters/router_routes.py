"""The edge's routes behind the routers' generated client: published by each, and acknowledged by every Envoy."""

import asyncio

import grpc
import structlog
import tenacity
from inferplane.router.v1 import router_service_pb2 as pb
from inferplane.router.v1 import router_service_pb2_grpc

from services.rpc.address import Address
from services.rpc.each_peer import EachPeer
from services.rpc.names import EndpointName, VersionName

_log = structlog.get_logger(__name__)

_SECONDS = 5.0  # usually it takes milliseconds
_AWAY_SECONDS = 1.0  # without an answer a router is away
_LOOK_EVERY = 0.02
_REQUEST = pb.GetStatusRequest(this_router_only=True)


class RouterRoutes:
    """EdgeRoutes over RouterService: each router is asked, as it knows the Envoys that it has told itself."""

    def __init__(self, routers: EachPeer) -> None:
        """Assign only."""
        self._routers = routers

    async def wait_routed(self, endpoint: EndpointName, version: VersionName) -> None:
        """Return once calls reach the version; a router that is away, or has no Envoy, is not waited for."""
        routers = self._routers.newest()
        waiting = (self._wait(*router, endpoint, version) for router in routers.items())
        await asyncio.gather(*waiting)
        if not routers:
            _log.warning("no router was found", endpoint=str(endpoint), version=str(version))

    async def _wait(
        self,
        router: Address,
        channel: grpc.aio.Channel,
        endpoint: EndpointName,
        version: VersionName,
    ) -> None:
        stub = router_service_pb2_grpc.RouterServiceStub(channel)
        try:
            async with asyncio.timeout(_SECONDS):
                async for attempt in tenacity.AsyncRetrying(
                    retry=tenacity.retry_if_exception_type(_NotYetError),
                    wait=tenacity.wait_fixed(_LOOK_EVERY),
                ):
                    with attempt:
                        status = await stub.GetStatus(_REQUEST, timeout=_AWAY_SECONDS)
                        if status.envoys and not is_routed(status, endpoint, version):
                            raise _NotYetError
        except (TimeoutError, grpc.aio.AioRpcError) as error:
            _log.warning(
                "not known to be routed",
                router=str(router),
                endpoint=str(endpoint),
                version=str(version),
                why=repr(error),
            )


class _NotYetError(Exception):
    """The router or an Envoy has not got there yet."""


def is_routed(status: pb.GetStatusResponse, endpoint: EndpointName, version: VersionName) -> bool:
    """Whether the published routes lead from the endpoint to workers with the version, and every Envoy has them."""
    if not all(envoy.in_sync for envoy in status.envoys):
        return False
    return any(
        target.version == str(version) and target.ready_workers > 0
        for routed in status.endpoints
        if routed.name == str(endpoint)
        for target in routed.targets
    )
