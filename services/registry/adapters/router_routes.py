"""The edge's routes behind the router's generated client: published, and acknowledged by every Envoy."""

import asyncio

import grpc
import structlog
import tenacity
from inferplane.router.v1 import router_service_pb2 as pb
from inferplane.router.v1 import router_service_pb2_grpc

from services.rpc.names import EndpointName, VersionName

_log = structlog.get_logger(__name__)

_SECONDS = 5.0  # usually it takes milliseconds
_LOOK_EVERY = 0.02
# Asked one after the other of several routers, so many times: each knows the Envoys that it has told itself.
_ROUTERS = 4


class RouterRoutes:
    """EdgeRoutes over RouterService."""

    def __init__(self, channel: grpc.aio.Channel, *, several: bool = False) -> None:
        """`several`: the channel's calls go to several routers in turn."""
        self._looks = _ROUTERS if several else 1
        self._stub = router_service_pb2_grpc.RouterServiceStub(channel)

    async def wait_routed(self, endpoint: EndpointName, version: VersionName) -> None:
        """Return once calls reach the version; a router that is away, or has no Envoy, is not waited for."""
        try:
            async with asyncio.timeout(_SECONDS):
                async for attempt in tenacity.AsyncRetrying(
                    retry=tenacity.retry_if_exception_type(_NotYetError),
                    wait=tenacity.wait_fixed(_LOOK_EVERY),
                ):
                    with attempt:
                        await self._look(endpoint, version)
        except (TimeoutError, grpc.aio.AioRpcError) as error:
            _log.warning(
                "not known to be routed",
                endpoint=str(endpoint),
                version=str(version),
                why=repr(error),
            )

    async def _look(self, endpoint: EndpointName, version: VersionName) -> None:
        for _ in range(self._looks):
            status = await self._stub.GetStatus(pb.GetStatusRequest(), timeout=_SECONDS)
            if status.envoys and not is_routed(status, endpoint, version):
                raise _NotYetError


class _NotYetError(Exception):
    """The router or an Envoy is not there yet."""


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
