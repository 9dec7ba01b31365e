"""`inferplane.registry.v1.EndpointService`: endpoints and their traffic policy."""

from typing import Any

import grpc
from inferplane.registry.v1 import endpoint_service_pb2 as pb
from inferplane.registry.v1.endpoint_service_pb2_grpc import EndpointServiceServicer

from services.registry.drivers.endpoints import Endpoints
from services.registry.servicers.endpoint_messages import endpoint_message, policy_input
from services.rpc import names
from services.rpc.page import page_request

_Context = grpc.aio.ServicerContext[Any, Any]


class EndpointService(EndpointServiceServicer):
    """Reads requests, calls the use cases, writes answers."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    async def CreateEndpoint(
        self, request: pb.CreateEndpointRequest, context: _Context
    ) -> pb.CreateEndpointResponse:
        name = names.EndpointName(names.check_id("endpoint_id", request.endpoint_id))
        endpoint = await self._endpoints.create(name, policy_input(request.endpoint))
        return pb.CreateEndpointResponse(endpoint=endpoint_message(endpoint))

    async def GetEndpoint(
        self, request: pb.GetEndpointRequest, context: _Context
    ) -> pb.GetEndpointResponse:
        endpoint = await self._endpoints.get(names.parse_endpoint("name", request.name))
        return pb.GetEndpointResponse(endpoint=endpoint_message(endpoint))

    async def ListEndpoints(
        self, request: pb.ListEndpointsRequest, context: _Context
    ) -> pb.ListEndpointsResponse:
        wanted = page_request("endpoints", request.page_size, request.page_token)
        page = await self._endpoints.list(wanted)
        return pb.ListEndpointsResponse(
            endpoints=[endpoint_message(endpoint) for endpoint in page.items],
            next_page_token=page.next_page_token,
        )

    async def UpdateEndpoint(
        self, request: pb.UpdateEndpointRequest, context: _Context
    ) -> pb.UpdateEndpointResponse:
        endpoint = await self._endpoints.update(
            names.parse_endpoint("endpoint.name", request.endpoint.name),
            policy_input(request.endpoint),
            tuple(request.update_mask.paths),
            etag=request.endpoint.etag,
            allow_missing=request.allow_missing,
        )
        return pb.UpdateEndpointResponse(endpoint=endpoint_message(endpoint))

    async def DeleteEndpoint(
        self, request: pb.DeleteEndpointRequest, context: _Context
    ) -> pb.DeleteEndpointResponse:
        await self._endpoints.delete(names.parse_endpoint("name", request.name), request.etag)
        return pb.DeleteEndpointResponse()
