"""Follows discovery's list of live workers."""

import grpc
from inferplane.discovery.v1 import discovery_service_pb2, worker_pb2
from inferplane.discovery.v1.discovery_service_pb2_grpc import DiscoveryServiceStub
from inferplane.registry.v1 import placement_pb2

from services.router.adapters.watch import Progress, keep_up
from services.router.domain.topology import Worker
from services.router.ports.feeds import WorkerSink
from services.rpc import names


class DiscoveryWatch:
    """Feeds a sink from `DiscoveryService.WatchWorkers`."""

    def __init__(self, channel: grpc.aio.Channel, sink: WorkerSink) -> None:
        self._stub = DiscoveryServiceStub(channel)
        self._sink = sink

    async def run(self) -> None:
        """Follow for ever."""
        await keep_up("discovery", self._follow, self._sink.lose_discovery)

    async def _follow(self, progress: Progress) -> None:
        request = discovery_service_pb2.WatchWorkersRequest()
        async for message in self._stub.WatchWorkers(request):
            progress.heard = True
            self._sink.hear_discovery([read_worker(worker) for worker in message.workers])


def read_worker(message: worker_pb2.Worker) -> Worker:
    """What routing needs of a worker."""
    ready = frozenset(
        names.parse_version("versions.version", version.version)
        for version in message.versions
        if version.state == placement_pb2.LOAD_STATE_READY
    )
    return Worker(
        name=message.name,
        address=message.address,
        draining=message.draining,
        ready=ready,
        zone=message.zone,
    )
