"""What the other routers say, behind their generated client."""

import asyncio
from collections.abc import Mapping

import grpc
from inferplane.router.v1 import router_service_pb2 as pb
from inferplane.router.v1 import router_service_pb2_grpc

from services.rpc.each_peer import EachPeer

_SECONDS = 1.0  # without an answer a router is away
_REQUEST = pb.GetStatusRequest(this_router_only=True)


class OtherRouters:
    """Asks each router that is known, this one too if its address is among theirs."""

    def __init__(self, routers: EachPeer) -> None:
        """Assign only."""
        self._routers = routers

    async def ask(self) -> Mapping[str, pb.GetStatusResponse | str]:
        """By address what each says of itself, or why it says nothing."""
        routers = self._routers.newest()
        said = await asyncio.gather(*map(_said, routers.values()))
        return dict(zip(map(str, routers), said, strict=True))


async def _said(channel: grpc.aio.Channel) -> pb.GetStatusResponse | str:
    stub = router_service_pb2_grpc.RouterServiceStub(channel)
    try:
        return await stub.GetStatus(_REQUEST, timeout=_SECONDS)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {_SECONDS:g} s"
        return f"{error.code().name}: {error.details()}"
