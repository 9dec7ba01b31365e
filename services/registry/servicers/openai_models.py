"""OpenAI's list of models, as Envoy's transcoder asks for it: the endpoints of language models."""

from typing import Any

import grpc
import orjson
from google.api.httpbody_pb2 import HttpBody
from inferplane.openai.v1 import openai_service_pb2 as openai
from inferplane.openai.v1 import openai_service_pb2_grpc

from services.registry.domain.endpoint import Endpoint
from services.registry.domain.references import not_found
from services.registry.drivers.language_endpoints import LanguageEndpoints
from services.rpc.errors import UnimplementedError
from services.rpc.names import EndpointName, check_id

# Set by the edge alone.
_ENDPOINTS_HEADER = "x-inferplane-endpoints"

_Context = grpc.aio.ServicerContext[Any, Any]


class OpenAiModels(openai_service_pb2_grpc.OpenAiServiceServicer):
    """The other methods of this service are the workers'."""

    def __init__(self, endpoints: LanguageEndpoints) -> None:
        self._endpoints = endpoints

    async def ListModels(self, request: openai.ListModelsRequest, context: _Context) -> HttpBody:
        """All that the caller may call."""
        allowed = _allowed(context)
        listed = [
            _model(endpoint.name.endpoint, endpoint)
            for endpoint in await self._endpoints.list()
            if allowed is None or endpoint.name.endpoint in allowed
        ]
        return _json({"object": "list", "data": listed})

    async def GetModel(self, request: openai.GetModelRequest, context: _Context) -> HttpBody:
        """One of them, by `endpoint` or `endpoint@version`."""
        endpoint, _, version = request.model.partition("@")
        name = EndpointName(check_id("model", endpoint))
        allowed = _allowed(context)
        if allowed is not None and endpoint not in allowed:
            raise not_found(str(name))
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


def _allowed(context: _Context) -> set[str] | None:
    """Ids of the endpoints that the edge says the caller's key is for; None: all."""
    for key, value in context.invocation_metadata() or ():
        if key == _ENDPOINTS_HEADER:
            return _endpoints(value if isinstance(value, str) else value.decode())
    return None


def _endpoints(text: str) -> set[str] | None:
    """A JSON list; or, of a token that has one text for it, that text."""
    try:
        said = orjson.loads(text)
    except orjson.JSONDecodeError:
        said = [text]
    named = {one for one in said if isinstance(one, str)} if isinstance(said, list) else {text}
    return None if "*" in named else named


def _model(ident: str, endpoint: Endpoint) -> dict[str, Any]:
    created = int(endpoint.create_time.timestamp())
    return {"id": ident, "object": "model", "created": created, "owned_by": "inferplane"}


def _of_workers(method: str) -> UnimplementedError:
    return UnimplementedError(
        f"{method}: workers answer it; call it at the edge", reason="NOT_THE_REGISTRYS_METHOD"
    )


def _json(said: object) -> HttpBody:
    return HttpBody(content_type="application/json", data=orjson.dumps(said))
