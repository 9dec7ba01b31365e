"""Endpoints written as YAML: read strictly, then created or brought to what is written."""

from enum import Enum
from typing import Any

from inferplane.registry.v1 import endpoint_pb2, endpoint_service_pb2

from services.cli.adapters import yaml_message
from services.cli.adapters.edge import CALL_SECONDS, Edge
from services.cli.adapters.traffic import find_endpoint
from services.cli.domain.exit_code import UsageError
from services.cli.domain.reference import parse_endpoint_reference
from services.rpc.names import EndpointName


class Applied(Enum):
    """What applying did."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


def parse(text: str, source: str) -> list[endpoint_pb2.Endpoint]:
    """The endpoints of one or several YAML documents; UsageError tells document and field."""
    found = yaml_message.documents(text, source)
    if not found:
        raise UsageError(f"{source}: holds no endpoint", reason="YAML_EMPTY")
    return [
        _parse_one(document, f"{source}, document {number}")
        for number, document in enumerate(found, 1)
    ]


def _parse_one(document: Any, where: str) -> endpoint_pb2.Endpoint:
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise UsageError(
            f"{where}: needs a mapping with `name: endpoints/…`", reason="YAML_INVALID"
        )
    endpoint = yaml_message.read(document, endpoint_pb2.Endpoint(), where)
    endpoint.name = str(EndpointName(parse_endpoint_reference(endpoint.name)))
    return endpoint


async def apply(edge: Edge, wanted: endpoint_pb2.Endpoint) -> tuple[endpoint_pb2.Endpoint, Applied]:
    """Create the endpoint, or replace it by what is written; an etag in the manifest must match."""
    endpoint_id = wanted.name.removeprefix("endpoints/")
    there = await find_endpoint(edge, endpoint_id)
    if there is None:
        create = endpoint_service_pb2.CreateEndpointRequest(
            endpoint_id=endpoint_id, endpoint=wanted
        )
        created = await edge.endpoints.CreateEndpoint(create, timeout=CALL_SECONDS)
        return created.endpoint, Applied.CREATED
    if _written(there) == _written(wanted):
        return there, Applied.UNCHANGED
    wanted.etag = wanted.etag or there.etag
    update = endpoint_service_pb2.UpdateEndpointRequest(endpoint=wanted)
    updated = await edge.endpoints.UpdateEndpoint(update, timeout=CALL_SECONDS)
    same = updated.endpoint.etag == there.etag
    return updated.endpoint, Applied.UNCHANGED if same else Applied.CONFIGURED


def _written(endpoint: endpoint_pb2.Endpoint) -> endpoint_pb2.Endpoint:
    """The endpoint without what only the registry writes."""
    copy = endpoint_pb2.Endpoint()
    copy.CopyFrom(endpoint)
    copy.ClearField("create_time")
    copy.ClearField("update_time")
    copy.ClearField("etag")
    return copy
