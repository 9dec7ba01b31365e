"""The HTTP filters of the edge, in the order in which a request passes them. None depends on endpoints or traffic."""

from collections.abc import Sequence
from typing import Any

from envoy.extensions.common.matching.v3.extension_matcher_pb2 import ExtensionWithMatcher
from envoy.extensions.filters.common.matcher.action.v3.skip_action_pb2 import SkipFilter
from envoy.extensions.filters.http.grpc_field_extraction.v3.config_pb2 import (
    GrpcFieldExtractionConfig,
)
from envoy.extensions.filters.http.grpc_json_transcoder.v3.transcoder_pb2 import GrpcJsonTranscoder
from envoy.extensions.filters.http.json_to_metadata.v3.json_to_metadata_pb2 import (
    JsonToMetadata,
)
from envoy.extensions.filters.http.lua.v3.lua_pb2 import Lua
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.http.set_filter_state.v3.set_filter_state_pb2 import Config
from envoy.extensions.matching.common_inputs.network.v3.network_inputs_pb2 import FilterStateInput
from envoy.type.matcher.v3.http_inputs_pb2 import HttpRequestHeaderMatchInput
from xds.type.matcher.v3.matcher_pb2 import Matcher

from services.router.resources import edge, endpoint_module, guards, methods, wire
from services.router.resources.rest_errors import SCRIPT

# `bool clear_route_cache = 2` of set_filter_state's Config: Envoy 1.40 has it, xds-protos 1.85 not yet.
_CLEAR_ROUTE_CACHE = b"\x10\x01"
_SKIP = {"action": {"name": "skip", "typed_config": wire.packed(SkipFilter())}}
_EXTRACTED = "metadata.filter_metadata['envoy.filters.http.grpc_field_extraction']"

_BOUND = """
function envoy_on_request(handle)
  local body = handle:body()
  if body ~= nil and body:length() > MOST then
    handle:respond({[":status"] = "413"}, "")
  end
end
"""


def chain(settings: edge.Edge) -> list[dict[str, Any]]:
    """All filters.

    - lua: answers of failed REST calls get the protocol's JSON body. First here is last on the way back.
    - guards, unless nobody is asked for a key: who calls, and how much.
    - another lua: bodies in OpenAI's words have a bound of their own.
    - JSON to metadata, and from there to the filter state: what OpenAI's clients call `model`. Others don't pay.
    - transcoder: REST to gRPC and back.
    - another guard: may this role call the method.
    - our module, where Envoy has it: reads endpoint and version from the first message and keeps them.
    - field extraction: reads them from what the module left alone.
    - filter state: keeps them under our names and has the route chosen again.
    - the last guard: is the key for what the route leads to.
    """
    max_message_bytes, has_module = settings.max_message_bytes, settings.has_module
    callers, called, endpoints = _guards(settings)
    extraction = wire.extension("envoy.filters.http.grpc_field_extraction", _extraction())
    state = wire.extension("envoy.filters.http.set_filter_state", _state())
    reading = [extraction, state]
    if has_module:
        unless = [_unless_known(extraction), _unless_known(state)]
        delegates = [wire.extension("envoy.filters.http.match_delegate", one) for one in unless]
        reading = [endpoint_module.filter_(), *delegates]
    return [
        wire.extension("envoy.filters.http.match_delegate", _rest_errors()),
        *callers,
        wire.extension("envoy.filters.http.match_delegate", _for_openai(_bound(max_message_bytes))),
        wire.extension("envoy.filters.http.match_delegate", _for_openai(_model_of_json())),
        wire.extension("envoy.filters.http.match_delegate", _for_openai(_model_state())),
        wire.extension("envoy.filters.http.grpc_json_transcoder", _transcoder(max_message_bytes)),
        *called,
        *reading,
        *endpoints,
        wire.extension("envoy.filters.http.router", Router(suppress_envoy_headers=True)),
    ]


def _guards(settings: edge.Edge) -> tuple[list[dict[str, Any]], ...]:
    """Those at the beginning, after the transcoder, and at the end."""
    if not settings.asks_for_keys:
        return [], [], []
    callers = guards.of_callers(has_module=settings.has_module)
    return callers, [guards.of_methods()], [guards.of_endpoints()]


def _rest_errors() -> Any:
    """The script for REST callers; gRPC calls, which have nothing of it, don't pay for it."""
    kind = HttpRequestHeaderMatchInput(header_name="content-type")
    return ExtensionWithMatcher(
        extension_config=wire.extension(
            "envoy.filters.http.lua", Lua(default_source_code={"inline_string": SCRIPT})
        ),
        xds_matcher=Matcher(
            matcher_tree={
                "input": wire.extension("content-type", kind),
                "prefix_match_map": {"map": {"application/grpc": _SKIP}},
            }
        ),
    )


def _for_openai(filter_: dict[str, Any]) -> Any:
    """A filter for OpenAI's paths alone."""
    path = HttpRequestHeaderMatchInput(header_name=":path")
    is_openai = {
        "single_predicate": {
            "input": wire.extension("path", path),
            "value_match": {"prefix": methods.OPENAI_PREFIX},
        }
    }
    return ExtensionWithMatcher(
        extension_config=filter_,
        xds_matcher=Matcher(
            matcher_list={
                "matchers": [{"predicate": {"not_matcher": is_openai}, "on_match": _SKIP}]
            }
        ),
    )


def _unless_known(filter_: dict[str, Any]) -> Any:
    """A filter for calls whose endpoint and version the module has not found."""
    state = FilterStateInput(key=edge.ROUTE_STATE)
    return ExtensionWithMatcher(
        extension_config=filter_,
        xds_matcher=Matcher(
            matcher_tree={
                "input": wire.extension("route", state),
                "prefix_match_map": {"map": {"": _SKIP}},
            }
        ),
    )


def _bound(max_message_bytes: int) -> dict[str, Any]:
    """A body that is too long is refused once all of it is there: who is still sending would not hear why."""
    script = _BOUND.replace("MOST", str(edge.openai_body_bytes(max_message_bytes)))
    return wire.extension(
        "envoy.filters.http.lua", Lua(default_source_code={"inline_string": script})
    )


def _model_of_json() -> dict[str, Any]:
    """Of keys that are there twice the last one counts, as for the worker, which compares."""

    def value(key: str, text: str = "") -> dict[str, Any]:
        metadata = {"metadata_namespace": edge.OPENAI_METADATA, "key": key}
        return metadata | ({"value": {"string_value": text}} if text else {"type": "STRING"})

    rule = {
        "selectors": [{"key": "model"}],
        "on_present": value(edge.OPENAI_MODEL),
        "on_missing": value(edge.OPENAI_PROBLEM, "; it has none that is a string"),
        "on_error": value(edge.OPENAI_PROBLEM, "; it is not valid JSON"),
    }
    rules = {
        "rules": [rule],
        # Curl sends JSON as a form's data where nobody says otherwise.
        "allow_content_types_regex": {"regex": ".*"},
        "allow_empty_content_type": True,
    }
    return wire.extension(
        "envoy.filters.http.json_to_metadata", JsonToMetadata(request_rules=rules)
    )


def _model_state() -> dict[str, Any]:
    """Kept as the endpoint; a version in it is the route map's to know (`edge.openai_key`)."""
    model = f"%CEL(metadata.filter_metadata['{edge.OPENAI_METADATA}'].{edge.OPENAI_MODEL})%"
    state = Config(on_request_headers=[_value(edge.ENDPOINT_STATE, model)])
    return wire.extension("envoy.filters.http.set_filter_state", state)


def _transcoder(max_message_bytes: int) -> Any:
    return GrpcJsonTranscoder(
        proto_descriptor_bin=methods.descriptors(),
        services=[methods.REST, methods.OPENAI],
        print_options={"preserve_proto_field_names": True},
        ignore_unknown_query_parameters=True,
        # The path says which model; a query must not say otherwise.
        ignored_query_parameters=[
            *("model_name", "model_version", "http_body"),
            *("model", "content_type", "data", "extensions"),
        ],
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
    """Endpoint, version (empty: any) and both in one key."""
    endpoints, versions = zip(*sorted(set(methods.OF_ENDPOINT.values())), strict=True)
    route = (
        f"%FILTER_STATE({edge.ENDPOINT_STATE}:PLAIN)%@%FILTER_STATE({edge.VERSION_STATE}:PLAIN)%"
    )
    values = [
        _value(edge.ENDPOINT_STATE, _first_of(endpoints)),
        _value(edge.VERSION_STATE, _first_of(versions)),
        _value(edge.ROUTE_STATE, route),
    ]
    return Config.FromString(
        wire.serialized(Config(on_request_headers=values)) + _CLEAR_ROUTE_CACHE
    )


def _first_of(fields: Sequence[str]) -> str:
    """The value of the one field that the method has; one expression, since each costs some microseconds."""
    *others, last = fields
    choices = [f"'{field}' in {_EXTRACTED} ? {_EXTRACTED}.{field}[0] : " for field in others]
    return f"%CEL({''.join(choices)}{_EXTRACTED}.{last}[0])%"


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
