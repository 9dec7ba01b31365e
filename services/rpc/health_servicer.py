"""The service grpc.health.v1 of our servers: whether a server, or a service of it, serves."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
from typing import TYPE_CHECKING

from grpc_health.v1 import health_pb2

from services.rpc.errors import NotFoundError

if TYPE_CHECKING:
    import grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthServicer:
    """Tells whoever asks, and each watcher of every change.

    Not grpcio-health-checking's own: there the first watcher who goes takes the others' news along, so that a client
    that began to watch a standby never hears that it serves; and one who doesn't read holds up every change.
    """

    def __init__(self) -> None:
        """The server as a whole (`""`) does not serve until it is told to."""
        self._statuses = {"": NOT_SERVING}
        self._changed = asyncio.Condition()
        self._ends = False

    async def set(self, service: str, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        """Change what is told; nothing, once the server ends."""
        if not self._ends:
            await self._tell({service: status})

    async def enter_graceful_shutdown(self) -> None:
        """Nothing serves from now on, whatever is set later."""
        self._ends = True
        await self._tell(dict.fromkeys(self._statuses, NOT_SERVING))

    async def _tell(self, changes: dict[str, health_pb2.HealthCheckResponse.ServingStatus]) -> None:
        async with self._changed:
            self._statuses.update(changes)
            self._changed.notify_all()

    async def Check(  # noqa: N802, the service's own name
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[  # noqa: ARG002, each method is given one
            health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        ],
    ) -> health_pb2.HealthCheckResponse:
        """How a service is; NOT_FOUND if there is none of the name."""
        status = self._statuses.get(request.service)
        if status is None:
            raise NotFoundError(f"no service {request.service!r} here", reason="NO_SERVICE")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802, the service's own name
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[
            health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        ],
    ) -> None:
        """How a service is, at once and whenever it is another way; who reads slowly misses what is over by then."""
        service = request.service
        while True:
            told = self._statuses.get(service, _UNKNOWN)
            await context.write(health_pb2.HealthCheckResponse(status=told))
            async with self._changed:
                while self._statuses.get(service, _UNKNOWN) == told:
                    await self._changed.wait()
