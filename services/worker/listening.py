"""Where the worker listens, and by which of two servers: part of its composition root."""

import importlib.util
from typing import Protocol, cast

import grpc
from inference import open_inference_pb2, open_inference_pb2_grpc
from inferplane.generation.v1 import generation_service_pb2, generation_service_pb2_grpc
from inferplane.oip.v1 import rest_service_pb2, rest_service_pb2_grpc
from inferplane.openai.v1 import openai_service_pb2, openai_service_pb2_grpc

from services.rpc.server import RpcServer
from services.worker.servicers import fast_stream
from services.worker.servicers.fast_inference import PATH, FastInference
from services.worker.servicers.fast_stream import FastStream
from services.worker.servicers.front_server import FrontServer
from services.worker.servicers.generation import GenerationServicer
from services.worker.servicers.grpc_inference import AnswerSource, GrpcInferenceServicer
from services.worker.servicers.grpcio_infer import GrpcioInfer
from services.worker.servicers.openai_service import OpenAiServicer
from services.worker.servicers.rest_inference import RestInferenceServicer
from services.worker.settings import WorkerSettings

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


def listening(config: WorkerSettings) -> Listening:
    """The fast front on a unix socket where its codec is installed, else grpcio."""
    wants_front = config.front == "auto" and config.worker_address.startswith("unix:")
    if wants_front and importlib.util.find_spec("ngh2") is not None:
        return _ByFront(config)
    return _ByGrpcio(config)


class _ByGrpcio:
    """grpc.aio, on any address."""

    def __init__(self, config: WorkerSettings) -> None:
        self._rpc = RpcServer(
            address=config.worker_address, max_message_bytes=config.max_message_bytes
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
    """The fast front, on a unix socket."""

    def __init__(self, config: WorkerSettings) -> None:
        # Imported here, since where ngh2 has no wheel there is no front.
        from services.worker.adapters import grpc_status
        from services.worker.adapters.http2_codec import Ngh2Codec

        self._server = FrontServer(
            address=config.worker_address,
            max_message_bytes=config.max_message_bytes,
            make_codec=Ngh2Codec,
            status_of=grpc_status.trailers_of,
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
