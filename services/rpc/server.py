"""Life of a gRPC server: start, serve, stop in that order and no other (see `RpcServer.stop`)."""

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import cast

import grpc
import structlog
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server

from services.rpc import address as addresses
from services.rpc.errors import UnavailableError
from services.rpc.health_servicer import NOT_SERVING, SERVING, HealthServicer
from services.rpc.interceptor import ErrorInterceptor, Guard
from services.rpc.mapped_methods import MappedMethods
from services.rpc.tls import PLAIN, Security, TlsFiles, server_credentials

_log = structlog.get_logger(__name__)

_HEADER_BYTES = 80 * 1024
_NEVER = (
    24 * 3600.0
)  # seconds of grace, of which gRPC uses none: we end calls ourselves, and say why
_QUIET_SECONDS = 0.05  # without a call; callers who heed our health have gone elsewhere by then
_ARRIVING_SECONDS = 0.5  # for calls of the others
_TELLING_SECONDS = 1.0  # for a status on its way to a caller that doesn't read
_FRAMING_BYTES = 64 * 1024  # message limits are about payloads; headers and framing ride on top


class RpcServer:
    """A grpc.aio server with health, reflection and error mapping. Register servicers on `.grpc` before `start`."""

    def __init__(
        self,
        *,
        address: str,
        max_message_bytes: int,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        security: Security = PLAIN,
        guard: Guard | None = None,
    ) -> None:
        """Assign only; nothing listens yet.

        Args:
            address: `host:port` (port 0: any free one) or `unix:/path`.
            max_message_bytes: largest message in either direction.
            interceptors: run inside the error mapping.
            security: of TCP.
            guard: looks at each call first.
        """
        self._address = addresses.parse(address)
        limit = max_message_bytes + _FRAMING_BYTES
        self._security = security
        self._errors = ErrorInterceptor(guard)
        self._server = grpc.aio.server(
            interceptors=[self._errors, *interceptors] if interceptors else (),
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.so_reuseport", 0),
                # As much as the edge lets through and adds: by itself gRPC refuses at random from 8 KiB on.
                ("grpc.max_metadata_size", _HEADER_BYTES),
                ("grpc.absolute_max_metadata_size", _HEADER_BYTES),
                # Envoy and our own clients ping idle connections; without this grpc answers GOAWAY too_many_pings.
                ("grpc.http2.min_ping_interval_without_data_ms", 1000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.max_connection_age_grace_ms", 5000),
            ],
        )
        # An interceptor costs each call more than our own work for it: without others errors are mapped in the methods.
        # Generated code asks for a server and uses two methods of it, which these have.
        mapped = cast(grpc.aio.Server, MappedMethods(self._server, self._errors))
        self.grpc = self._server if interceptors else mapped
        self.health = HealthServicer()
        self.address = ""

    async def start(self, service_names: Sequence[str]) -> str:
        """Listen, and return the bound address; overall health stays NOT_SERVING until `set_health`.

        Args:
            service_names: full names of the registered services, for reflection.
        """
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.grpc)
        names = [*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME]
        add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), self.grpc)
        await self.health.set("", NOT_SERVING)
        files = self._security.files_for(self._address)
        addresses.prepare_socket(self._address)
        old = os.umask(0o177)  # the socket belongs to this user alone
        try:
            port = self._listen(files)
        except RuntimeError as error:  # grpc's only word for every failure to bind
            raise UnavailableError(
                f"can't listen on {self._address}: it is taken, or not an address of this machine",
                reason="ADDRESS_UNAVAILABLE",
                metadata={"address": str(self._address)},
            ) from error
        finally:
            os.umask(old)
        bound = self._address
        if bound.path is None:
            bound = addresses.Address(host=bound.host, port=port)
        self.address = str(bound)
        await self._server.start()
        _log.info("listening", address=self.address)
        return self.address

    def _listen(self, files: TlsFiles | None) -> int:
        address = str(self._address)
        if files is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, server_credentials(files))

    async def set_health(self, service: str, *, serving: bool) -> None:
        """Report health of the whole server (`""`) or of one service name."""
        await self.health.set(service, SERVING if serving else NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Report NOT_SERVING everywhere, refuse new calls, finish running ones for `grace` seconds, end the rest.

        Those hear UNAVAILABLE: another process may answer them.
        """
        await self.health.enter_graceful_shutdown()
        await self._tell_failed(grace)
        await self._until_quiet(min(grace, _ARRIVING_SECONDS))
        stopping = asyncio.ensure_future(self._server.stop(_NEVER))
        await asyncio.wait([stopping], timeout=grace)
        if not stopping.done():
            ended = await self._errors.end_calls()
            _log.warning("ended calls that outlasted the grace time", calls=ended)
            await self._tell_failed(_TELLING_SECONDS)
            # What is left is with gRPC, and hears CANCELLED: requests that have not come whole, callers who don't read.
            await self._server.stop(None)
        await stopping
        _log.info("stopped", address=self.address)

    async def _until_quiet(self, within: float) -> None:
        """Calls that lie before us are begun: gRPC would end them with CANCELLED, which says nothing."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        begun = -1
        while begun != self._errors.begun and loop.time() < end:
            begun = self._errors.begun
            await asyncio.sleep(_QUIET_SECONDS)

    async def _tell_failed(self, grace: float) -> None:
        """Callers whose call has just been ended hear why before the connection goes.

        The other way round a caller may answer the GOAWAY into a closed connection, and then never reads
        the status that lies before it.
        """
        await asyncio.sleep(0)  # calls that were woken to end have their turn
        try:
            async with asyncio.timeout(min(grace, _TELLING_SECONDS)):
                await self._errors.until_told()
        except TimeoutError:
            _log.warning("stopping before every failed call was told", address=self.address)


def stop_requested() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; call inside the running loop."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event
