"""What Envoy itself answers: the same words to every client, in its protocol, and nothing about connections."""

from dataclasses import replace
from typing import Any

from services.router.resources import denials, edge, methods, reply, wire
from services.router.resources.reply import Reply

_DEADLINE_EXCEEDED, _RESOURCE_EXHAUSTED, _UNIMPLEMENTED = "4", "8", "12"
_INVALID = "invalid_request_error"
# Where a caller's path is found, once the transcoder has seen it and before; and what it is then called if not found.
_OPENAI_HEADERS = {"x-envoy-original-path": "model_not_found", ":path": "unknown_url"}
_IS_GRPC = {
    "header_filter": {
        "header": {"name": "content-type", "string_match": {"prefix": "application/grpc"}}
    }
}
# The transcoder has given the request gRPC's content type, and left the path that the caller used in this header.
_IS_TRANSCODED = {
    "header_filter": {"header": {"name": "x-envoy-original-path", "present_match": True}}
}


def config(settings: edge.Edge) -> dict[str, Any]:
    """The local reply configuration; the first cause that fits wins."""
    mappers = [mapper for one in _replies(settings) for mapper in _mappers(one)]
    return {"mappers": mappers, "body_format": _as_json("%LOCAL_REPLY_BODY%")}


def _replies(settings: edge.Edge) -> list[Reply]:
    return [
        *(denials.replies() if settings.asks_for_keys else ()),
        *_about_requests(settings.max_message_bytes),
        *_about_workers(f"'{reply.state(edge.ENDPOINT_STATE)}'"),
        Reply(cause=None, text="%LOCAL_REPLY_BODY%"),
    ]


def _about_requests(max_message_bytes: int) -> list[Reply]:
    """What is wrong with what was sent."""
    too_large = f"the message is larger than the limit of {max_message_bytes} bytes"
    return [
        Reply(
            cause=reply.of_details("grpc_field_extraction_FAILED_PRECONDITION"),
            text=too_large,
            http_status=413,
            grpc_status=_RESOURCE_EXHAUSTED,
        ),
        Reply(
            cause=reply.of_status(413),
            text=too_large,
            grpc_status=_RESOURCE_EXHAUSTED,
            type=_INVALID,
            code="request_too_large",
            openai=f"the body is larger than the limit of {edge.openai_body_bytes(max_message_bytes)} bytes",
        ),
        Reply(
            cause=reply.all_of(
                reply.of_details("grpc_field_extraction_INVALID_ARGUMENT"), reply.COMPRESSED
            ),
            text="compressed messages are not supported; send with grpc-encoding identity",
            grpc_status=_UNIMPLEMENTED,
            headers=(("grpc-accept-encoding", "identity"),),
        ),
        Reply(
            cause=reply.of_details("path_normalization_failed"),
            text="the path must not hold escaped slashes, NUL or other characters that a path can't have",
            type=_INVALID,
        ),
    ]


def _about_workers(endpoint: str) -> list[Reply]:
    """Why nobody answers."""
    return [
        Reply(
            cause=reply.of_flags("UH", "NC"),
            text=f"no worker is ready for endpoint {endpoint}; try again",
            code="unavailable",
        ),
        Reply(
            cause=reply.of_flags("UO"),
            text=f"too many calls or retries in flight for endpoint {endpoint}; try again",
            code="unavailable",
        ),
        Reply(
            cause=reply.of_flags("OM"),
            text="the edge holds as many messages as its memory allows; try again",
            code="unavailable",
        ),
        Reply(
            cause=reply.of_flags("UF", "UC", "UR", "URX", "LR", "UPE"),
            text=f"the worker of endpoint {endpoint} went away before it answered; try again",
            code="unavailable",
        ),
        Reply(  # the request was there, but nothing came of it for as long as its route allows
            cause=reply.all_of(reply.of_flags("SI"), reply.of_status(504)),
            text=f"endpoint {endpoint} did not answer in time",
            grpc_status=_DEADLINE_EXCEEDED,
            code="timeout",
        ),
        *(
            Reply(cause=cause, text=f"endpoint {endpoint} did not answer in time", code="timeout")
            for cause in (reply.of_flags("UT", "SI"), reply.of_details("max_duration_timeout"))
        ),
    ]


def _mappers(one: Reply) -> list[dict[str, Any]]:
    """One reply as JSON for REST callers, as it is for gRPC callers."""
    plain = {"text_format_source": {"inline_string": one.text}}
    json, headers = _as_json(one.text), _headers(list(one.all_headers))
    transcoded = reply.all_of(one.cause, _IS_TRANSCODED)
    mappers = [
        *_openai_mappers(one),
        {"filter": transcoded, "body_format_override": json} | headers,
        {"filter": reply.all_of(one.cause, _IS_GRPC), "body_format_override": plain}
        | _grpc_headers(one),
    ]
    if one.cause is not None:
        mappers.append({"filter": one.cause, "body_format_override": json} | headers)
    if one.http_status is not None:
        mappers = [m | {"status_code": wire.number(one.http_status)} for m in mappers]
    return mappers


def _openai_mappers(one: Reply) -> list[dict[str, Any]]:
    """The same for OpenAI's clients, once for paths that were transcoded and once for others."""
    return [
        _openai_mapper(special, header)
        for header, if_missing in _OPENAI_HEADERS.items()
        for special in ([one] if one.cause else _by_status(one, if_missing))
    ]


def _by_status(one: Reply, if_missing: str) -> list[Reply]:
    return [
        replace(one, cause=reply.of_status(404), type=_INVALID, code=if_missing),
        replace(one, cause=reply.of_status(400), type=_INVALID),
        one,
    ]


def _openai_mapper(one: Reply, header: str) -> dict[str, Any]:
    prefix = {"name": header, "string_match": {"prefix": methods.OPENAI_PREFIX}}
    text = one.openai or one.text
    error = {"message": text, "type": one.type, "param": None, "code": one.code}
    return {
        "filter": reply.all_of(one.cause, {"header_filter": {"header": prefix}}),
        "body_format_override": {
            "json_format": {"error": error},
            "content_type": "application/json",
        },
    } | _headers(list(one.all_headers))


def _headers(given: list[tuple[str, str]]) -> dict[str, Any]:
    added = [
        {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
        for key, value in given
    ]
    return {"headers_to_add": added} if added else {}


def _grpc_headers(one: Reply) -> dict[str, Any]:
    status = [("grpc-status", one.grpc_status)] if one.grpc_status is not None else []
    return _headers([*one.all_headers, *one.headers, *status])


def _as_json(text: str) -> dict[str, Any]:
    return {"json_format": {"error": text}, "content_type": "application/json"}
