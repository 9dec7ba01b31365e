"""The HTTP filters of the edge, in the order in which a request passes them. None depends on endpoints or traffic."""

from typing import Any

from envoy.extensions.filters.http.grpc_field_extraction.v3.config_pb2 import (
    GrpcFieldExtractionConfig,
)
from envoy.extensions.filters.http.grpc_json_transcoder.v3.transcoder_pb2 import GrpcJsonTranscoder
from envoy.extensions.filters.http.lua.v3.lua_pb2 import Lua
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.http.set_filter_state.v3.set_filter_state_pb2 import Config

from services.router.resources import edge, methods, wire
from services.router.resources.rest_errors import SCRIPT

# `bool clear_route_cache = 2` of set_filter_state's Config: Envoy 1.40 has it, xds-protos 1.85 not yet.
_CLEAR_ROUTE_CACHE = b"\x10\x01"
_EXTRACTED = "metadata.filter_metadata['envoy.filters.http.grpc_field_extraction']"


def chain(max_message_bytes: int) -> list[dict[str, Any]]:
    """All filters.

    - lua: answers of failed REST calls get the protocol's JSON body. First here is last on the way back.
    - transcoder: REST to gRPC and back.
    - field extraction: reads endpoint and version from the first message.
    - filter state: keeps them under our names and has the route chosen again.
    """
    return [
        wire.extension("envoy.filters.http.lua", _rest_errors()),
        wire.extension("envoy.filters.http.grpc_json_transcoder", _transcoder(max_message_bytes)),
        wire.extension("envoy.filters.http.grpc_field_extraction", _extraction()),
        wire.extension("envoy.filters.http.set_filter_state", _state()),
        wire.extension("envoy.filters.http.router", Router(suppress_envoy_headers=True)),
    ]


def _rest_errors() -> Any:
    return Lua(default_source_code={"inline_string": SCRIPT})


def _transcoder(max_message_bytes: int) -> Any:
    return GrpcJsonTranscoder(
        proto_descriptor_bin=methods.descriptors(),
        services=[methods.REST],
        print_options={"preserve_proto_field_names": True},
        ignore_unknown_query_parameters=True,
        # The path says which model; a query must not say otherwise.
        ignored_query_parameters=["model_name", "model_version", "http_body"],
        convert_grpc_status=False,  # its JSON is not the protocol's; lua writes that
        match_incoming_request_route=False,
        max_request_body_size=wire.number(max_message_bytes),
        max_response_body_size=wire.number(max_message_bytes),
    )


def _extraction() -> Any:
    return GrpcFieldExtractionConfig(
        descriptor_set={"inline_bytes": methods.descriptors()},
        extractions_by_method={
            method: {"request_field_extractions": {field: {} for field in fields}}
            for method, fields in methods.OF_ENDPOINT.items()
        },
    )


def _state() -> Any:
    """Endpoint, version (empty: any) and both in one key. Field names differ by method, so each pair has its line."""
    values = []
    for endpoint, version in sorted(set(methods.OF_ENDPOINT.values())):
        name, pin = _first(endpoint), _first(version)
        values += [
            _value(edge.ENDPOINT_STATE, name),
            _value(edge.VERSION_STATE, pin),
        ]
    values.append(
        _value(
            edge.ROUTE_STATE,
            f"%FILTER_STATE({edge.ENDPOINT_STATE}:PLAIN)%@%FILTER_STATE({edge.VERSION_STATE}:PLAIN)%",
        )
    )
    return Config.FromString(
        wire.serialized(Config(on_request_headers=values)) + _CLEAR_ROUTE_CACHE
    )


def _first(field: str) -> str:
    return f"%CEL({_EXTRACTED}.{field}[0])%"


def _value(key: str, text: str) -> dict[str, Any]:
    return {
        "object_key": key,
        "factory_key": "envoy.string",
        "skip_if_empty": True,
        "format_string": {
            "text_format_source": {"inline_string": text},
            "omit_empty_values": True,
        },
    }
