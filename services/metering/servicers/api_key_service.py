"""`inferplane.metering.v1.ApiKeyService`: who is let in, and what signs that."""

from typing import Any

import grpc
from inferplane.metering.v1 import api_key_service_pb2 as pb
from inferplane.metering.v1.api_key_service_pb2_grpc import ApiKeyServiceServicer

from services.metering.drivers.api_keys import ApiKeys, KeyListing
from services.metering.drivers.signing import Signing
from services.metering.servicers.identity_messages import given_span, key_input, key_message
from services.rpc import names
from services.rpc.errors import InvalidArgumentError
from services.rpc.page import page_request

_Context = grpc.aio.ServicerContext[Any, Any]
_ALL_PROJECTS = "projects/-"


class ApiKeyService(ApiKeyServiceServicer):
    """Reads requests, calls the use cases, writes answers."""

    def __init__(self, keys: ApiKeys, signing: Signing) -> None:
        self._keys = keys
        self._signing = signing

    async def CreateApiKey(
        self, request: pb.CreateApiKeyRequest, context: _Context
    ) -> pb.CreateApiKeyResponse:
        project = names.parse_project("parent", request.parent)
        if request.api_key.name:
            raise InvalidArgumentError.of_field(
                "api_key.name",
                f"{names.shown(request.api_key.name)}; allowed: empty, names of keys are drawn",
            )
        issued = await self._keys.create(
            project, key_input(request.api_key), given_span(request, "lifetime")
        )
        return pb.CreateApiKeyResponse(api_key=key_message(issued.key), token=issued.token)

    async def GetApiKey(
        self, request: pb.GetApiKeyRequest, context: _Context
    ) -> pb.GetApiKeyResponse:
        key = await self._keys.get(names.parse_key("name", request.name))
        return pb.GetApiKeyResponse(api_key=key_message(key))

    async def ListApiKeys(
        self, request: pb.ListApiKeysRequest, context: _Context
    ) -> pb.ListApiKeysResponse:
        everybody = request.parent == _ALL_PROJECTS
        project = None if everybody else names.parse_project("parent", request.parent)
        listing = f"{request.parent}/keys"
        wanted = page_request(listing, request.page_size, request.page_token)
        page = await self._keys.list(KeyListing(project, request.show_ended), wanted)
        return pb.ListApiKeysResponse(
            api_keys=[key_message(key) for key in page.items],
            next_page_token=page.next_page_token,
        )

    async def UpdateApiKey(
        self, request: pb.UpdateApiKeyRequest, context: _Context
    ) -> pb.UpdateApiKeyResponse:
        key = await self._keys.update(
            names.parse_key("api_key.name", request.api_key.name),
            key_input(request.api_key),
            tuple(request.update_mask.paths),
            request.api_key.etag,
        )
        return pb.UpdateApiKeyResponse(api_key=key_message(key))

    async def RotateApiKey(
        self, request: pb.RotateApiKeyRequest, context: _Context
    ) -> pb.RotateApiKeyResponse:
        issued = await self._keys.rotate(
            names.parse_key("name", request.name),
            given_span(request, "overlap"),
            given_span(request, "lifetime"),
        )
        return pb.RotateApiKeyResponse(api_key=key_message(issued.key), token=issued.token)

    async def RevokeApiKey(
        self, request: pb.RevokeApiKeyRequest, context: _Context
    ) -> pb.RevokeApiKeyResponse:
        key = await self._keys.revoke(names.parse_key("name", request.name))
        return pb.RevokeApiKeyResponse(api_key=key_message(key))

    async def RotateSigningKey(
        self, request: pb.RotateSigningKeyRequest, context: _Context
    ) -> pb.RotateSigningKeyResponse:
        kid = await self._signing.rotate(given_span(request, "overlap"))
        return pb.RotateSigningKeyResponse(kid=kid)

    async def GetJwks(self, request: pb.GetJwksRequest, context: _Context) -> pb.GetJwksResponse:
        return pb.GetJwksResponse(jwks=await self._signing.jwks())
