"""What Envoy itself answers: the same words to every client, in its protocol, and nothing about connections."""

from dataclasses import dataclass, replace
from typing import Any

from envoy.extensions.access_loggers.filters.cel.v3.cel_pb2 import ExpressionFilter

from services.router.resources import edge, methods, wire

_SHOWN = 80  # characters of a client's name for something that an answer repeats
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """One cause and what the caller is told."""

    cause: dict[str, Any] | None  # Envoy's access log filter; None: any
    text: str
    http_status: int | None = None  # None: as Envoy has it, likewise the next
    grpc_status: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    type: str = "server_error"  # in OpenAI's words, likewise the next
    code: str | None = None
    openai: str = ""  # text for OpenAI's clients, where it differs


def state(key: str) -> str:
    """Envoy's format for a filter state, cut where it gets long."""
    return f"%FILTER_STATE({key}:PLAIN):{_SHOWN}%"


def config(max_message_bytes: int) -> dict[str, Any]:
    """The local reply configuration; the first cause that fits wins."""
    mappers = [mapper for reply in _replies(max_message_bytes) for mapper in _mappers(reply)]
    return {"mappers": mappers, "body_format": _as_json("%LOCAL_REPLY_BODY%")}


def _replies(max_message_bytes: int) -> list[_Reply]:
    return [
        *_about_requests(max_message_bytes),
        *_about_workers(f"'{state(edge.ENDPOINT_STATE)}'"),
        _Reply(cause=None, text="%LOCAL_REPLY_BODY%"),
    ]


def _about_requests(max_message_bytes: int) -> list[_Reply]:
    """What is wrong with what was sent."""
    too_large = f"the message is larger than the limit of {max_message_bytes} bytes"
    return [
        _Reply(
            cause=_of_details("grpc_field_extraction_FAILED_PRECONDITION"),
            text=too_large,
            http_status=413,
            grpc_status=_RESOURCE_EXHAUSTED,
        ),
        _Reply(
            cause=_of_status(413),
            text=too_large,
            grpc_status=_RESOURCE_EXHAUSTED,
            type=_INVALID,
            code="request_too_large",
            openai=f"the body is larger than the limit of {edge.openai_body_bytes(max_message_bytes)} bytes",
        ),
        _Reply(
            cause=_all(_of_details("grpc_field_extraction_INVALID_ARGUMENT"), _COMPRESSED),
            text="compressed messages are not supported; send with grpc-encoding identity",
            grpc_status=_UNIMPLEMENTED,
            headers=(("grpc-accept-encoding", "identity"),),
        ),
        _Reply(
            cause=_of_details("path_normalization_failed"),
            text="the path must not hold escaped slashes, NUL or other characters that a path can't have",
            type=_INVALID,
        ),
    ]


def _about_workers(endpoint: str) -> list[_Reply]:
    """Why nobody answers."""
    return [
        _Reply(
            cause=_of_flags("UH", "NC"),
            text=f"no worker is ready for endpoint {endpoint}; try again",
            code="unavailable",
        ),
        _Reply(
            cause=_of_flags("UO"),
            text=f"too many calls or retries in flight for endpoint {endpoint}; try again",
            code="unavailable",
        ),
        _Reply(
            cause=_of_flags("OM"),
            text="the edge holds as many messages as its memory allows; try again",
            code="unavailable",
        ),
        _Reply(
            cause=_of_flags("UF", "UC", "UR", "URX", "LR", "UPE"),
            text=f"the worker of endpoint {endpoint} went away before it answered; try again",
            code="unavailable",
        ),
        _Reply(  # the request was there, but nothing came of it for as long as its route allows
            cause=_all(_of_flags("SI"), _of_status(504)),
            text=f"endpoint {endpoint} did not answer in time",
            grpc_status=_DEADLINE_EXCEEDED,
            code="timeout",
        ),
        *(
            _Reply(cause=cause, text=f"endpoint {endpoint} did not answer in time", code="timeout")
            for cause in (_of_flags("UT", "SI"), _of_details("max_duration_timeout"))
        ),
    ]


# A message that says it is compressed; a header alone, with messages as they are, is no reason to refuse.
_COMPRESSED = {
    "header_filter": {
        "header": {
            "name": "grpc-encoding",
            "string_match": {"exact": "identity"},
            "invert_match": True,
        }
    }
}


def _mappers(reply: _Reply) -> list[dict[str, Any]]:
    """One reply as JSON for REST callers, as it is for gRPC callers."""
    plain = {"text_format_source": {"inline_string": reply.text}}
    json = _as_json(reply.text)
    mappers = [
        *_openai_mappers(reply),
        {"filter": _all(reply.cause, _IS_TRANSCODED), "body_format_override": json},
        {"filter": _all(reply.cause, _IS_GRPC), "body_format_override": plain} | _headers(reply),
    ]
    if reply.cause is not None:
        mappers.append({"filter": reply.cause, "body_format_override": json})
    if reply.http_status is not None:
        mappers = [m | {"status_code": wire.number(reply.http_status)} for m in mappers]
    return mappers


def _openai_mappers(reply: _Reply) -> list[dict[str, Any]]:
    """The same for OpenAI's clients, once for paths that were transcoded and once for others."""
    return [
        _openai_mapper(special, header)
        for header, if_missing in _OPENAI_HEADERS.items()
        for special in ([reply] if reply.cause else _by_status(reply, if_missing))
    ]


def _by_status(reply: _Reply, if_missing: str) -> list[_Reply]:
    return [
        replace(reply, cause=_of_status(404), type=_INVALID, code=if_missing),
        replace(reply, cause=_of_status(400), type=_INVALID),
        reply,
    ]


def _openai_mapper(reply: _Reply, header: str) -> dict[str, Any]:
    prefix = {"name": header, "string_match": {"prefix": methods.OPENAI_PREFIX}}
    text = reply.openai or reply.text
    error = {"message": text, "type": reply.type, "param": None, "code": reply.code}
    return {
        "filter": _all(reply.cause, {"header_filter": {"header": prefix}}),
        "body_format_override": {
            "json_format": {"error": error},
            "content_type": "application/json",
        },
    }


def _headers(reply: _Reply) -> dict[str, Any]:
    given = list(reply.headers)
    if reply.grpc_status is not None:
        given.append(("grpc-status", reply.grpc_status))
    added = [
        {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
        for key, value in given
    ]
    return {"headers_to_add": added} if added else {}


def _all(*filters: dict[str, Any] | None) -> dict[str, Any]:
    given = [filter_ for filter_ in filters if filter_ is not None]
    return {"and_filter": {"filters": given}} if len(given) > 1 else given[0]


def _as_json(text: str) -> dict[str, Any]:
    return {"json_format": {"error": text}, "content_type": "application/json"}


def _of_flags(*flags: str) -> dict[str, Any]:
    return {"response_flag_filter": {"flags": list(flags)}}


def _of_status(status: int) -> dict[str, Any]:
    value = {"default_value": status, "runtime_key": "inferplane.local_reply_status"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


def _of_details(details: str) -> dict[str, Any]:
    expression = f"response.code_details.startsWith('{details}')"
    return {
        "extension_filter": wire.extension(
            "envoy.access_loggers.extension_filters.cel", ExpressionFilter(expression=expression)
        )
    }
