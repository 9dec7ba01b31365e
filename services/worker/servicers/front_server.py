"""Life of the front as a server: start, serve, stop, with health; the same acts as `RpcServer`."""

from collections.abc import Callable

import structlog
from grpc_health.v1 import health_pb2_grpc

from services.rpc import address as addresses
from services.rpc.errors import InferplaneError
from services.rpc.health_servicer import NOT_SERVING, SERVING, HealthServicer
from services.worker.domain.call_head import Headers
from services.worker.drivers.front import Door, Front
from services.worker.ports.http2 import MakeCodec
from services.worker.servicers.front_methods import MethodTable

_log = structlog.get_logger(__name__)


class FrontServer:
    """Health and methods over a front. Register servicers on `.methods` before `start`."""

    def __init__(
        self,
        *,
        address: str,
        max_message_bytes: int,
        make_codec: MakeCodec,
        status_of: Callable[[InferplaneError], Headers],
        door: Door | None = None,
    ) -> None:
        """Assign only; nothing listens yet.

        Args:
            address: `unix:/path`; `host:port` with a door.
            max_message_bytes: largest payload in either direction.
            make_codec: of each connection.
            status_of: an error's trailers.
            door: of TCP.
        """
        self._address = addresses.parse(address)
        self.methods = MethodTable()
        self.health = HealthServicer()
        self._door = door
        self._front = Front(
            methods=self.methods.methods,
            streams=self.methods.streams,
            make_codec=make_codec,
            status_of=status_of,
            max_message_bytes=max_message_bytes,
        )

    async def start(self) -> str:
        """Listen, and return the address; overall health stays NOT_SERVING until `set_health`."""
        # The table stands in for a server; the stubs can't know that.
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.methods)
        await self.health.set("", NOT_SERVING)
        self._address = await self._front.start(self._address, self._door)
        _log.info("listening", address=str(self._address), front="ngh2")
        return str(self._address)

    def flush(self) -> None:
        """Write the answers that were given since the last time."""
        self._front.flush()

    async def set_health(self, service: str, *, serving: bool) -> None:
        """Report health of the whole server (`""`) or of one service name."""
        await self.health.set(service, SERVING if serving else NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Report NOT_SERVING everywhere, refuse new calls, finish running ones for `grace` seconds, end the rest."""
        await self.health.enter_graceful_shutdown()
        await self._front.stop(grace)
        _log.info("stopped", address=str(self._address))
