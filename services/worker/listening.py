"""Where the worker listens, and by which of two servers: part of its composition root."""

import importlib.util
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol, cast

import grpc
import structlog
from inference import open_inference_pb2, open_inference_pb2_grpc
from inferplane.generation.v1 import generation_service_pb2, generation_service_pb2_grpc
from inferplane.oip.v1 import rest_service_pb2, rest_service_pb2_grpc
from inferplane.openai.v1 import openai_service_pb2, openai_service_pb2_grpc

from services.rpc import address as addresses
from services.rpc import peers, tls
from services.rpc.errors import PermissionDeniedError
from services.rpc.interceptor import Guard
from services.rpc.peer_kind import PeerKind
from services.rpc.server import RpcServer
from services.rpc.tls import PLAIN, Security, TlsFiles
from services.worker.domain import caller
from services.worker.drivers.front import Door
from services.worker.servicers import fast_stream
from services.worker.servicers.call import TENANT_HEADER
from services.worker.servicers.fast_inference import PATH, FastInference
from services.worker.servicers.fast_stream import FastStream
from services.worker.servicers.front_server import FrontServer
from services.worker.servicers.generation import GenerationServicer
from services.worker.servicers.grpc_inference import AnswerSource, GrpcInferenceServicer
from services.worker.servicers.grpcio_infer import GrpcioInfer
from services.worker.servicers.openai_service import OpenAiServicer
from services.worker.servicers.rest_inference import RestInferenceServicer
from services.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)

_HEALTH = "grpc.health.v1.Health"  # its own container asks with the worker's certificate
# Headers that say who calls; only the edge may.
_IDENTITY = {caller.KEY_HEADER.decode(), caller.SHADOW_HEADER.decode(), TENANT_HEADER}
_SERVICES = (
    open_inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name,
    rest_service_pb2.DESCRIPTOR.services_by_name["RestInferenceService"].full_name,
    generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name,
    openai_service_pb2.DESCRIPTOR.services_by_name["OpenAiService"].full_name,
)


class Listening(Protocol):
    """A server of the worker's methods."""

    def serve(self, source: AnswerSource) -> None:
        """Answer from here; before `start`."""
        ...

    async def start(self) -> str:
        """Listen, and return the address."""
        ...

    async def set_health(self, service: str, *, serving: bool) -> None:
        """Report SERVING or NOT_SERVING."""
        ...

    def flush(self) -> None:
        """Write the answers that were given since the last time."""
        ...

    async def stop(self, grace: float) -> None:
        """Finish running calls for `grace` seconds, end the rest."""
        ...


def _add_servicers(source: AnswerSource, server: grpc.aio.Server) -> None:
    open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
        GrpcInferenceServicer(source), server
    )
    rest_service_pb2_grpc.add_RestInferenceServiceServicer_to_server(
        RestInferenceServicer(source), server
    )
    generation_service_pb2_grpc.add_GenerationServiceServicer_to_server(
        GenerationServicer(source), server
    )
    openai_service_pb2_grpc.add_OpenAiServiceServicer_to_server(OpenAiServicer(source), server)


def listening(config: WorkerSettings, security: Security = PLAIN) -> Listening:
    """The fast front on a unix socket or TLS where its codec is installed, else grpcio."""
    files = security.files_for(addresses.parse(config.worker_address))
    is_guarded = files is not None or config.worker_address.startswith("unix:")
    wants_front = config.front == "auto" and is_guarded
    if wants_front and importlib.util.find_spec("ngh2") is not None:
        return _ByFront(config, files)
    return _ByGrpcio(config, security)


def _guard(config: WorkerSettings, security: Security) -> Guard | None:
    """Who may call: over TLS the edge alone; over plain TCP anybody, but nobody says there who calls."""
    allowed, healthy = {PeerKind.EDGE}, {_HEALTH: {PeerKind.EDGE, PeerKind.WORKER}}
    by_certificate = peers.guard(config.worker_address, security, allowed, healthy)
    is_trusted = config.worker_address.startswith("unix:") or security.insecure_tcp
    return by_certificate if by_certificate is not None or is_trusted else _refuse_identity


def _refuse_identity(context: grpc.aio.ServicerContext[Any, Any], method: str) -> None:
    for key, _ in context.invocation_metadata() or ():
        if key in _IDENTITY:
            raise PermissionDeniedError(
                f"{key} came over plain TCP, where anybody could say it; {method} is served to the"
                " edge by a unix socket or TLS (INFERPLANE_TLS_DIR), or with INFERPLANE_INSECURE_TCP=1",
                reason="IDENTITY_UNPROVEN",
                metadata={"header": str(key), "method": method},
            )


def _door(files: TlsFiles) -> Door:
    return Door(tls.server_context(files), partial(_is, PeerKind.EDGE), _asks)


def _is(kind: PeerKind, certificate: Mapping[str, Any]) -> bool:
    names = certificate.get("subjectAltName", ())
    return kind in tls.kinds_of(value for form, value in names if form == "URI")


def _asks(certificate: Mapping[str, Any]) -> bool:
    """Whether it is a worker, as this one's own health check is; any other is refused."""
    if _is(PeerKind.WORKER, certificate):
        return True
    names = certificate.get("subjectAltName", ())
    _log.warning("refused a peer that is not the edge", certificate=names)
    return False


class _ByGrpcio:
    """grpc.aio, on any address."""

    def __init__(self, config: WorkerSettings, security: Security) -> None:
        self._rpc = RpcServer(
            address=config.worker_address,
            max_message_bytes=config.max_message_bytes,
            security=security,
            guard=_guard(config, security),
        )
        self.set_health = self._rpc.set_health
        self.stop = self._rpc.stop

    def serve(self, source: AnswerSource) -> None:
        """Add the servicers."""
        _add_servicers(source, self._rpc.grpc)
        GrpcioInfer(FastInference(source)).register(self._rpc.grpc)

    async def start(self) -> str:
        """Listen."""
        return await self._rpc.start(_SERVICES)

    def flush(self) -> None:
        """Calls write their answers themselves."""


class _ByFront:
    """The fast front, on a unix socket or TLS."""

    def __init__(self, config: WorkerSettings, files: TlsFiles | None) -> None:
        # Imported here, since where ngh2 has no wheel there is no front.
        from services.worker.adapters import grpc_status
        from services.worker.adapters.http2_codec import Ngh2Codec

        self._server = FrontServer(
            address=config.worker_address,
            max_message_bytes=config.max_message_bytes,
            make_codec=Ngh2Codec,
            status_of=grpc_status.trailers_of,
            door=None if files is None else _door(files),
        )
        self.start = self._server.start
        self.set_health = self._server.set_health
        self.flush = self._server.flush
        self.stop = self._server.stop

    def serve(self, source: AnswerSource) -> None:
        """Add the servicers; the hot path takes the place of one of their methods."""
        # The generated functions ask for a server and use two methods of it, which the table has.
        table = cast(grpc.aio.Server, self._server.methods)
        _add_servicers(source, table)
        self._server.methods.methods[PATH] = FastInference(source).begin
        self._server.methods.streams[fast_stream.PATH] = FastStream(source).open
