"""Errors in OpenAI's words: the body of a failed call, and the last event of a stream that breaks off."""

import re
from typing import Any
from urllib.parse import quote

import orjson

from services.rpc.errors import InferplaneError, Kind
from services.rpc.interceptor import fitting, retry_header

# The edge takes the body of a failed call from here (services/router/resources/rest_errors.py).
ERROR_HEADER = "x-inferplane-error"

_INVALID = "invalid_request_error"
_TYPES = {
    Kind.INVALID_ARGUMENT: _INVALID,
    Kind.FAILED_PRECONDITION: _INVALID,
    Kind.NOT_FOUND: _INVALID,
    Kind.OUT_OF_RANGE: _INVALID,
    Kind.UNIMPLEMENTED: _INVALID,
    Kind.RESOURCE_EXHAUSTED: "rate_limit_error",
}
_CODES = {
    Kind.NOT_FOUND: "model_not_found",
    Kind.RESOURCE_EXHAUSTED: "rate_limit_exceeded",
    Kind.DEADLINE_EXCEEDED: "timeout",
    Kind.UNAVAILABLE: "unavailable",
}
_REASONS = {"CONTEXT_EXCEEDED": "context_length_exceeded"}
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")  # what stays as it is
_PARAM = re.compile(r"^[A-Za-z0-9_.\[\]-]{1,128}$")


def body(error: InferplaneError) -> dict[str, Any]:
    """The object that OpenAI's clients read."""
    named = error.violations[0].field if error.violations else None
    return {
        "error": {
            "message": fitting(error.message),
            "type": _TYPES.get(error.kind, "server_error"),
            "param": named if named and _PARAM.match(named) else None,
            "code": _REASONS.get(error.reason) or _CODES.get(error.kind),
        }
    }


def trailers(error: InferplaneError) -> tuple[tuple[str, str], ...]:
    """Metadata from which the edge makes the answer of a call that failed before it said anything."""
    said = (ERROR_HEADER, quote(orjson.dumps(body(error)).decode(), safe=_PLAIN))
    return (said, *retry_header(error))


def event(error: InferplaneError) -> bytes:
    """The last event of a stream that has begun and breaks off."""
    return b"data: " + orjson.dumps(body(error)) + b"\n\n"
