"""`inferplane.discovery.v1.DiscoveryService`: leases of live workers."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from inferplane.discovery.v1 import discovery_service_pb2 as pb
from inferplane.discovery.v1.discovery_service_pb2_grpc import DiscoveryServiceServicer

from services.registry.domain.leases import DEFAULT_TTL, LONGEST_TTL, SHORTEST_TTL
from services.registry.ports.live_workers import LiveWorkers
from services.registry.servicers.worker_messages import read_worker, worker_message
from services.rpc import names
from services.rpc.errors import InvalidArgumentError
from services.rpc.times import span

_Context = grpc.aio.ServicerContext[Any, Any]


class DiscoveryService(DiscoveryServiceServicer):
    """Reads what workers report, tells who is alive."""

    def __init__(self, leases: LiveWorkers) -> None:
        self._leases = leases

    async def RegisterWorker(
        self, request: pb.RegisterWorkerRequest, context: _Context
    ) -> pb.RegisterWorkerResponse:
        live = self._leases.register(read_worker(request.worker), _read_ttl(request))
        return pb.RegisterWorkerResponse(worker=worker_message(live))

    async def DeregisterWorker(
        self, request: pb.DeregisterWorkerRequest, context: _Context
    ) -> pb.DeregisterWorkerResponse:
        self._leases.deregister(names.parse_worker("name", request.name))
        return pb.DeregisterWorkerResponse()

    async def ListWorkers(
        self, request: pb.ListWorkersRequest, context: _Context
    ) -> pb.ListWorkersResponse:
        return pb.ListWorkersResponse(workers=[worker_message(w) for w in self._leases.live()])

    async def WatchWorkers(
        self, request: pb.WatchWorkersRequest, context: _Context
    ) -> AsyncIterator[pb.WatchWorkersResponse]:
        seen = 0
        while True:
            seen = await self._leases.wait_beyond(seen)
            live = self._leases.live()
            yield pb.WatchWorkersResponse(workers=[worker_message(worker) for worker in live])


def _read_ttl(request: pb.RegisterWorkerRequest) -> float:
    if not request.HasField("ttl"):
        return DEFAULT_TTL
    ttl = span(request.ttl).total_seconds()
    if not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        raise InvalidArgumentError.of_field(
            "ttl", f"{ttl:g} s; allowed: {SHORTEST_TTL:g} s to {LONGEST_TTL:g} s"
        )
    return ttl
