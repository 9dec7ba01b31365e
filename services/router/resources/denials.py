"""What is told to callers who are not let in: what is wrong, in each protocol, and nothing that helps to guess."""

import base64
from dataclasses import dataclass

from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from services.router.resources import edge, reply, wire
from services.router.resources.reply import Reply
from services.rpc.errors import DOMAIN

_PERMISSION_DENIED, _RESOURCE_EXHAUSTED, _UNIMPLEMENTED = 7, 8, 12
_UNAVAILABLE, _UNAUTHENTICATED = 14, 16
_HTTP = {
    _PERMISSION_DENIED: 403,
    _RESOURCE_EXHAUSTED: 429,
    _UNIMPLEMENTED: 404,
    _UNAVAILABLE: 503,
    _UNAUTHENTICATED: 401,
}
# OpenAI's words.
_KINDS = {
    _PERMISSION_DENIED: ("invalid_request_error", "permission_denied"),
    _RESOURCE_EXHAUSTED: ("rate_limit_error", "rate_limit_exceeded"),
    _UNIMPLEMENTED: ("invalid_request_error", "unknown_url"),
    _UNAVAILABLE: ("server_error", "unavailable"),
    _UNAUTHENTICATED: ("invalid_request_error", "invalid_api_key"),
}
_DETAILS = "grpc-status-details-bin"
_JWT = "jwt_authn_access_denied{"
_RBAC = "rbac_access_denied_matched_policy["


@dataclass(frozen=True, slots=True)
class _Denial:
    """Envoy's details of a refusal, and what is told instead."""

    details: str  # how they begin
    status: int
    reason: str
    text: str
    shown: str = ""  # the text where it names what was asked for


_DENIALS = (
    _Denial(
        _JWT + "Jwt_is_missing",
        _UNAUTHENTICATED,
        "API_KEY_MISSING",
        "there is no API key; send one as `authorization: Bearer <key>`",
    ),
    _Denial(
        _JWT + "Jwt_is_expired", _UNAUTHENTICATED, "API_KEY_EXPIRED", "the API key has expired"
    ),
    _Denial(
        _JWT + "Jwt_not_yet_valid",
        _UNAUTHENTICATED,
        "API_KEY_NOT_YET_VALID",
        "the API key is not valid yet",
    ),
    _Denial(_JWT, _UNAUTHENTICATED, "API_KEY_INVALID", "the API key is not one of ours"),
    _Denial(
        _RBAC + "several]",
        _UNAUTHENTICATED,
        "API_KEY_INVALID",
        "there must be one authorization header with one API key",
    ),
    _Denial(_RBAC + "revoked]", _UNAUTHENTICATED, "API_KEY_REVOKED", "the API key was revoked"),
    _Denial(
        _RBAC + "claims]",
        _PERMISSION_DENIED,
        "PROJECT_MISSING",
        "the token names no project that can be one of ours, or nobody",
    ),
    _Denial(
        _RBAC + "project]", _PERMISSION_DENIED, "PROJECT_DISABLED", "the key's project is disabled"
    ),
    _Denial(
        _RBAC + "role]",
        _PERMISSION_DENIED,
        "ROLE_NOT_ALLOWED",
        "the API key's role may not call this method",
        f"the API key's role '%REQ({edge.ROLE_HEADER}):16%' may not call this method",
    ),
    _Denial(
        _RBAC + "internal]",
        _PERMISSION_DENIED,
        "METHOD_INTERNAL",
        "only services may call this; not at the edge",
    ),
    _Denial(
        _RBAC + "unlisted]",
        _UNIMPLEMENTED,
        "NO_SUCH_METHOD",
        "there is no such method or path here",
    ),
    _Denial(  # of the filter that follows the routes, which has no name for what it refuses
        _RBAC + "none]",
        _PERMISSION_DENIED,
        "ENDPOINT_NOT_ALLOWED",
        "the API key is not for this endpoint",
        f"the API key is not for endpoint '{reply.state(edge.ENDPOINT_STATE)}'",
    ),
    _Denial(
        "local_rate_limited",
        _RESOURCE_EXHAUSTED,
        "REQUESTS_PER_SECOND",
        "the requests a second of this key or its project are used up; try again",
    ),
)


def replies() -> list[Reply]:
    """All of them."""
    limits = Reply(  # our module's answer, complete but for its form
        cause=reply.of_details("inferplane_limits"),
        text="%LOCAL_REPLY_BODY%",
        grpc_status=str(_RESOURCE_EXHAUSTED),
        type=_KINDS[_RESOURCE_EXHAUSTED][0],
        code=_KINDS[_RESOURCE_EXHAUSTED][1],
    )
    text = "the edge does not know yet who may call; try again"
    unknown = _Denial("", _UNAVAILABLE, "POLICY_UNKNOWN", text)
    return [
        *(_reply(denial, reply.of_details(denial.details)) for denial in _DENIALS),
        limits,
        _reply(unknown, reply.of_flags("NFCF")),
    ]


def _reply(denial: _Denial, cause: dict[str, object]) -> Reply:
    kind, code = _KINDS[denial.status]
    headers: list[tuple[str, str]] = []
    if denial.status == _UNAUTHENTICATED:
        headers.append(("www-authenticate", 'Bearer realm="inferplane"'))
    if denial.status == _RESOURCE_EXHAUSTED:
        headers.append(("retry-after", "1"))
    return Reply(
        cause=cause,
        text=denial.shown or denial.text,
        http_status=_HTTP[denial.status],
        grpc_status=str(denial.status),
        headers=((_DETAILS, _details(denial)),),
        all_headers=tuple(headers),
        type=kind,
        code=code,
    )


def _details(denial: _Denial) -> str:
    """The error as a program reads it (AIP-193), as gRPC writes bytes in headers."""
    info = AnyMessage()
    info.Pack(error_details_pb2.ErrorInfo(reason=denial.reason, domain=DOMAIN))
    status = status_pb2.Status(code=denial.status, message=denial.text, details=[info])
    return base64.b64encode(wire.serialized(status)).decode().rstrip("=")
