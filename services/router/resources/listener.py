"""The edge's listener: constant. A change would end long streams after the drain time, so traffic is not in here."""

from typing import Any

from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.access_loggers.file.v3.file_pb2 import FileAccessLog
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.http.early_header_mutation.header_mutation.v3.header_mutation_pb2 import (
    HeaderMutation,
)

from services.router.domain.snapshot import Kind, Reference, Resource
from services.router.resources import edge, filters, replies, tls, wire

_FRAMING_BYTES = 64 * 1024
_LARGEST_WINDOW = (1 << 31) - 1  # RFC 9113, 6.9.1
_HEADERS_SECONDS = 30.0
# Ours, which workers believe; and Envoy's, with which a client could set timeouts and retries or pass for REST.
_STRIPPED_PREFIXES = ("x-inferplane-", "x-envoy-")
# Headers with which a client could choose a worker or a model beside the body's word, or name his request as another
# was named: usage is counted by it.
_STRIPPED_HEADERS = ("x-model", "x-gateway-destination-endpoint", "x-request-id")


def resource(settings: edge.Edge) -> Resource:
    """The listener."""
    manager = wire.extension(
        "envoy.filters.network.http_connection_manager", _connection_manager(settings)
    )
    chain = FilterChain(filters=[manager])
    tls.secure(chain, settings)
    message = Listener(
        name=edge.LISTENER,
        address=wire.socket(settings.address),
        filter_chains=[chain],
        per_connection_buffer_limit_bytes=wire.number(settings.max_message_bytes + _FRAMING_BYTES),
    )
    references = [Reference(Kind.ROUTES, edge.ROUTES), *tls.listener_references(settings)]
    if settings.asks_for_keys:
        references += [Reference(Kind.FILTER, name) for name in edge.policy_filters()]
    return Resource.of(Kind.LISTENER, edge.LISTENER, wire.serialized(message), references)


def _connection_manager(settings: edge.Edge) -> Any:
    # The first message of a call is held whole while it is read for the endpoint: it must fit the window.
    window = min(settings.max_message_bytes + _FRAMING_BYTES, _LARGEST_WINDOW)
    return HttpConnectionManager(
        stat_prefix="edge",
        rds={
            "route_config_name": edge.ROUTES,
            "config_source": {"ads": {}, "resource_api_version": "V3"},
        },
        http_filters=filters.chain(settings),
        early_header_mutation_extensions=[
            wire.extension("envoy.http.early_header_mutation.header_mutation", _stripping())
        ],
        local_reply_config=replies.config(settings),
        access_log=_access_log(settings.access_log),
        http2_protocol_options={
            "initial_stream_window_size": wire.number(window),
            "initial_connection_window_size": wire.number(min(2 * window, _LARGEST_WINDOW)),
        },
        request_headers_timeout=wire.seconds(_HEADERS_SECONDS),
        stream_idle_timeout=wire.seconds(settings.stall_seconds),
        use_remote_address=wire.flag(on=True),
        generate_request_id=wire.flag(on=True),
        always_set_request_id_in_response=True,
        normalize_path=wire.flag(on=True),
        merge_slashes=True,
        path_with_escaped_slashes_action="REJECT_REQUEST",
        server_name="inferplane",
    )


def _stripping() -> Any:
    """Headers that only the edge may set are removed before anything reads them."""
    by_prefix = [
        {"remove_on_match": {"key_matcher": {"prefix": prefix}}} for prefix in _STRIPPED_PREFIXES
    ]
    by_name = [{"remove": name} for name in _STRIPPED_HEADERS]
    return HeaderMutation(mutations=[*by_prefix, *by_name])


def _access_log(path: str) -> list[dict[str, Any]]:
    if not path:
        return []
    log = FileAccessLog(path=path)
    log.log_format.json_format.update(
        {
            "time": "%START_TIME%",
            "request_id": "%REQ(X-REQUEST-ID)%",
            "project": f"%REQ({edge.PROJECT_HEADER})%",
            "key": f"%REQ({edge.KEY_HEADER})%",
            "method": "%REQ(:METHOD)%",
            "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
            "endpoint": f"%FILTER_STATE({edge.ENDPOINT_STATE}:PLAIN)%",
            "pinned": f"%FILTER_STATE({edge.VERSION_STATE}:PLAIN)%",
            "version": "%UPSTREAM_CLUSTER%",
            "worker": "%UPSTREAM_HOST%",
            "status": "%RESPONSE_CODE%",
            "grpc_status": "%GRPC_STATUS(CAMEL_STRING)%",
            "flags": "%RESPONSE_FLAGS%",
            "details": "%RESPONSE_CODE_DETAILS%",
            "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
            "received_bytes": "%BYTES_RECEIVED%",
            "sent_bytes": "%BYTES_SENT%",
            "duration_ms": "%DURATION%",
            "upstream_ms": "%RESPONSE_DURATION%",
        }
    )
    return [wire.extension("envoy.access_loggers.file", log)]
