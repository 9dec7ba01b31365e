"""OpenAI's list of models, as Envoy's transcoder asks for it: the endpoints of language models."""

from typing import Any

import grpc
import orjson
from google.api.httpbody_pb2 import HttpBody
from inferplane.openai.v1 import openai_service_pb2 as openai
from inferplane.openai.v1 import openai_service_pb2_grpc

from services.registry.domain.endpoint import Endpoint
from services.registry.drivers.language_endpoints import LanguageEndpoints
from services.rpc.errors import UnimplementedError
from services.rpc.names import EndpointName, check_id

_Context = grpc.aio.ServicerContext[Any, Any]


class OpenAiModels(openai_service_pb2_grpc.OpenAiServiceServicer):
    """The other methods of this service are the workers'."""

    def __init__(self, endpoints: LanguageEndpoints) -> None:
        self._endpoints = endpoints

    async def ListModels(self, request: openai.ListModelsRequest, context: _Context) -> HttpBody:
        """All of them."""
        listed = [
            _model(endpoint.name.endpoint, endpoint) for endpoint in await self._endpoints.list()
        ]
        return _json({"object": "list", "data": listed})

    async def GetModel(self, request: openai.GetModelRequest, context: _Context) -> HttpBody:
        """One of them, by `endpoint` or `endpoint@version`."""
        endpoint, _, version = request.model.partition("@")
        name = EndpointName(check_id("model", endpoint))
        return _json(_model(request.model, await self._endpoints.get(name, version)))

    async def CreateChatCompletion(  # type: ignore[override] # the stubs know of generators only
        self, request: HttpBody, context: _Context
    ) -> None:
        """A worker's answer, not the registry's."""
        raise _of_workers("CreateChatCompletion")

    async def CreateCompletion(  # type: ignore[override] # as above
        self, request: HttpBody, context: _Context
    ) -> None:
        """A worker's answer, not the registry's."""
        raise _of_workers("CreateCompletion")


def _model(ident: str, endpoint: Endpoint) -> dict[str, Any]:
    created = int(endpoint.create_time.timestamp())
    return {"id": ident, "object": "model", "created": created, "owned_by": "inferplane"}


def _of_workers(method: str) -> UnimplementedError:
    return UnimplementedError(
        f"{method}: workers answer it; call it at the edge", reason="NOT_THE_REGISTRYS_METHOD"
    )


def _json(said: object) -> HttpBody:
    return HttpBody(content_type="application/json", data=orjson.dumps(said))
