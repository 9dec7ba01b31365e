"""`inferplane.registry.v1.PlacementService`: which versions are loaded on which pools."""

from typing import Any

import grpc
from inferplane.registry.v1 import placement_pb2
from inferplane.registry.v1 import placement_service_pb2 as pb
from inferplane.registry.v1.placement_service_pb2_grpc import PlacementServiceServicer

from services.registry.domain.placement import Placement, placement_status
from services.registry.drivers.placements import Placements
from services.registry.ports.live_workers import LiveWorkers
from services.registry.servicers.placement_messages import placement_message
from services.rpc import names
from services.rpc.page import page_request
from services.rpc.violations import Violations

_Context = grpc.aio.ServicerContext[Any, Any]


class PlacementService(PlacementServiceServicer):
    """Reads requests, calls the use cases, writes answers with what live workers report."""

    def __init__(self, placements: Placements, leases: LiveWorkers) -> None:
        self._placements = placements
        self._leases = leases

    def _message(self, placement: Placement) -> placement_pb2.Placement:
        status = placement_status(placement.name, self._leases.workers())
        return placement_message(placement, status)

    async def CreatePlacement(
        self, request: pb.CreatePlacementRequest, context: _Context
    ) -> pb.CreatePlacementResponse:
        violations = Violations()
        pool = violations.take(names.parse_pool, "parent", request.parent)
        version = violations.take(
            names.parse_version, "placement.version", request.placement.version
        )
        violations.raise_if_any()
        assert pool is not None
        assert version is not None
        placement = await self._placements.create(names.PlacementName(pool.pool, version))
        return pb.CreatePlacementResponse(placement=self._message(placement))

    async def GetPlacement(
        self, request: pb.GetPlacementRequest, context: _Context
    ) -> pb.GetPlacementResponse:
        placement = await self._placements.get(names.parse_placement("name", request.name))
        return pb.GetPlacementResponse(placement=self._message(placement))

    async def ListPlacements(
        self, request: pb.ListPlacementsRequest, context: _Context
    ) -> pb.ListPlacementsResponse:
        all_pools = request.parent == "pools/-"
        parent = None if all_pools else names.parse_pool("parent", request.parent)
        listing = f"{request.parent}/placements"
        wanted = page_request(listing, request.page_size, request.page_token)
        page = await self._placements.list(parent, wanted)
        return pb.ListPlacementsResponse(
            placements=[self._message(placement) for placement in page.items],
            next_page_token=page.next_page_token,
        )

    async def DeletePlacement(
        self, request: pb.DeletePlacementRequest, context: _Context
    ) -> pb.DeletePlacementResponse:
        await self._placements.delete(names.parse_placement("name", request.name), request.etag)
        return pb.DeletePlacementResponse()
