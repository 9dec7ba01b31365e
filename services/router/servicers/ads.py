"""Envoy's aggregated discovery service, delta variant (envoy.service.discovery.v3)."""

from collections.abc import AsyncIterator
from typing import Any

import structlog
from envoy.service.discovery.v3 import discovery_pb2
from envoy.service.discovery.v3.ads_pb2_grpc import AggregatedDiscoveryServiceServicer
from google.protobuf.any_pb2 import Any as AnyMessage

from services.router.domain.order import Request, Response
from services.router.drivers import ads_stream
from services.router.drivers.board import Board
from services.router.drivers.roster import Envoy, Roster
from services.router.ports.feeds import Clock
from services.router.servicers.type_urls import KINDS, TYPE_URLS
from services.rpc.errors import UnimplementedError

_log = structlog.get_logger(__name__)


class AdsServicer(AggregatedDiscoveryServiceServicer):  # type: ignore[misc]  # xds-protos has no types
    """Translates between the protocol's messages and the stream driver's values."""

    def __init__(self, board: Board, roster: Roster, clock: Clock) -> None:
        self._board = board
        self._roster = roster
        self._clock = clock

    def StreamAggregatedResources(self, request_iterator: Any, context: Any) -> Any:
        raise UnimplementedError("only DeltaAggregatedResources is served; use api_type DELTA_GRPC")

    async def DeltaAggregatedResources(
        self, request_iterator: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        first = await anext(request_iterator, None)
        if first is None:
            return
        node = first.node
        envoy = Envoy(node_id=node.id, connect_time=self._clock.wall(), zone=node.locality.zone)
        requests = _requests(first, request_iterator)
        async for response in ads_stream.serve(envoy, requests, self._board, self._roster):
            yield _message(response)


async def _requests(first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[Request]:
    for request in _request(first):
        yield request
    async for message in rest:
        for request in _request(message):
            yield request


def _request(message: Any) -> list[Request]:
    """The request of a message, or nothing if it is about a type that is not served."""
    kind = KINDS.get(message.type_url)
    if kind is None:
        _log.warning("type is not served", type_url=message.type_url)
        return []
    refusal = message.error_detail.message if message.HasField("error_detail") else None
    return [
        Request(
            kind=kind,
            subscribe=tuple(message.resource_names_subscribe),
            unsubscribe=tuple(message.resource_names_unsubscribe),
            held=dict(message.initial_resource_versions),
            nonce=message.response_nonce,
            refusal=refusal,
        )
    ]


def _message(response: Response) -> Any:
    type_url = TYPE_URLS[response.kind]
    update = response.update
    message = discovery_pb2.DeltaDiscoveryResponse(
        type_url=type_url, nonce=update.nonce, removed_resources=update.removed
    )
    for resource in update.resources:
        message.resources.add(
            name=resource.name,
            version=resource.version,
            resource=AnyMessage(type_url=type_url, value=resource.body),
        )
    return message
