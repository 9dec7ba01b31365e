"""Triton's repository methods, by gRPC and by REST: those of the inference services that the registry answers."""

from collections.abc import Mapping
from typing import Any

import grpc
import orjson
from google.api.httpbody_pb2 import HttpBody
from inference import open_inference_pb2 as oip
from inferplane.oip.v1 import rest_service_pb2 as rest

from services.registry.domain.repository import IndexEntry
from services.registry.domain.repository_parameters import version_to_load, version_to_unload
from services.registry.drivers.repository import Repository
from services.registry.servicers.repository_bodies import read_body, read_parameters, read_ready
from services.rpc.errors import InvalidArgumentError
from services.rpc.names import ModelName, check_id, shown

_Context = grpc.aio.ServicerContext[Any, Any]
_Method = tuple[Any, Any]  # what answers, and the request's message
SERVICES = ("inference.GRPCInferenceService", "inferplane.oip.v1.RestInferenceService")


class RepositoryService:
    """Reads requests of both protocols, calls the use cases, writes answers."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer these methods of both services; workers have the others."""
        by_service: dict[str, dict[str, _Method]] = {
            SERVICES[0]: {
                "RepositoryIndex": (self.index, oip.RepositoryIndexRequest),
                "RepositoryModelLoad": (self.load, oip.RepositoryModelLoadRequest),
                "RepositoryModelUnload": (self.unload, oip.RepositoryModelUnloadRequest),
            },
            SERVICES[1]: {
                "RepositoryIndex": (self.index_rest, rest.RepositoryIndexRequest),
                "RepositoryModelLoad": (self.load_rest, rest.RepositoryModelLoadRequest),
                "RepositoryModelUnload": (self.unload_rest, rest.RepositoryModelUnloadRequest),
            },
        }
        for service, methods in by_service.items():
            handlers = {name: _handler(*method) for name, method in methods.items()}
            handler = grpc.method_handlers_generic_handler(service, handlers)
            server.add_generic_rpc_handlers((handler,))

    async def index(
        self, request: oip.RepositoryIndexRequest, context: _Context
    ) -> oip.RepositoryIndexResponse:
        """Every version and whether it is loaded."""
        _check_repository(request.repository_name)
        entries = await self._repository.index(ready_only=request.ready)
        return oip.RepositoryIndexResponse(
            models=[oip.RepositoryIndexResponse.ModelIndex(**_entry(entry)) for entry in entries]
        )

    async def load(
        self, request: oip.RepositoryModelLoadRequest, context: _Context
    ) -> oip.RepositoryModelLoadResponse:
        """Returns when the model answers."""
        _check_repository(request.repository_name)
        await self._load(request.model_name, _parameters(request.parameters))
        return oip.RepositoryModelLoadResponse()

    async def unload(
        self, request: oip.RepositoryModelUnloadRequest, context: _Context
    ) -> oip.RepositoryModelUnloadResponse:
        """Returns when no worker has it any more."""
        _check_repository(request.repository_name)
        await self._unload(request.model_name, _parameters(request.parameters))
        return oip.RepositoryModelUnloadResponse()

    async def index_rest(self, request: rest.RepositoryIndexRequest, context: _Context) -> HttpBody:
        """The same as JSON: an array."""
        ready = read_ready(read_body(request.http_body.data))
        entries = await self._repository.index(ready_only=ready)
        return _json([_entry(entry) for entry in entries])

    async def load_rest(
        self, request: rest.RepositoryModelLoadRequest, context: _Context
    ) -> HttpBody:
        """The same, answered by an empty object."""
        parameters = read_parameters(read_body(request.http_body.data))
        await self._load(request.model_name, parameters)
        return _json({})

    async def unload_rest(
        self, request: rest.RepositoryModelUnloadRequest, context: _Context
    ) -> HttpBody:
        """The same, answered by an empty object."""
        parameters = read_parameters(read_body(request.http_body.data))
        await self._unload(request.model_name, parameters)
        return _json({})

    async def _load(self, model: str, parameters: Mapping[str, object]) -> None:
        name, version = ModelName(check_id("model_name", model)), version_to_load(parameters)
        await self._repository.load(name, version)

    async def _unload(self, model: str, parameters: Mapping[str, object]) -> None:
        name, version = ModelName(check_id("model_name", model)), version_to_unload(parameters)
        await self._repository.unload(name, version)


def _handler(answer: Any, request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


def _check_repository(name: str) -> None:
    if name:
        raise InvalidArgumentError.of_field(
            "repository_name", f"{shown(name)}; allowed: empty, there is one repository"
        )


def _parameters(given: Mapping[str, oip.ModelRepositoryParameter]) -> dict[str, object]:
    return {
        name: getattr(value, value.WhichOneof("parameter_choice") or "", None)
        for name, value in given.items()
    }


def _entry(entry: IndexEntry) -> dict[str, str]:
    return {
        "name": entry.version.model,
        "version": entry.version.version,
        "state": entry.state.value,
        "reason": entry.reason,
    }


def _json(said: object) -> HttpBody:
    return HttpBody(content_type="application/json", data=orjson.dumps(said))
