"""What a call's context says: where Envoy routed it, until when it may take, which HTTP headers came."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from services.worker.domain.call_head import Headers, read_attempt
from services.worker.domain.caller import (
    KEY_HEADER,
    REQUEST_ID_HEADER,
    SHADOW_HEADER,
    Caller,
    id_bytes,
)
from services.worker.domain.routing import Asked
from services.worker.drivers.tab import CallMark
from services.worker.ports.call import UnaryCall

VERSION_HEADER = "x-inferplane-version"
ENDPOINT_HEADER = "x-inferplane-endpoint"
TENANT_HEADER = "x-inferplane-project"  # the edge sets it
ATTEMPT_HEADER = "x-envoy-attempt-count"

_KEY = KEY_HEADER.decode()
_SHADOW = SHADOW_HEADER.decode()
_REQUEST_ID = REQUEST_ID_HEADER.decode()

Context = grpc.aio.ServicerContext[Any, Any]


def asked(context: Context, model_name: str, model_version: str) -> Asked:
    """What the body and Envoy's headers say about the model."""
    version = endpoint = None
    retried = False
    for key, value in context.invocation_metadata() or ():
        if key == VERSION_HEADER:
            version = str(value) or None
        elif key == ENDPOINT_HEADER:
            endpoint = str(value) or None
        elif key == ATTEMPT_HEADER:
            retried = str(value) != "1"
    return Asked(model_name, model_version, version, endpoint, retried)


def header(context: Context, name: str) -> str | None:
    """The last value of an HTTP header."""
    found = None
    for key, value in context.invocation_metadata() or ():
        if key == name:
            found = str(value)
    return found


def tenant(context: Context) -> str:
    """Who asks; empty: nobody in particular."""
    return header(context, TENANT_HEADER) or ""


def caller(context: Context) -> Caller:
    """Who asks, as the edge says."""
    said = dict(context.invocation_metadata() or ())
    return Caller(
        project=str(said.get(TENANT_HEADER, "")),
        key=str(said.get(_KEY, "")),
        endpoint=str(said.get(ENDPOINT_HEADER, "")),
        is_shadow=said.get(_SHADOW) == "1",
    )


def request_id(context: Context) -> bytes:
    """16 bytes: the edge's, or one that is drawn here."""
    return id_bytes((header(context, _REQUEST_ID) or "").encode())


def deadline(context: Context) -> float | None:
    """When the caller stops waiting, as a time of the monotonic clock; None: never."""
    # The stubs say float; without a deadline it is None (grpc/aio/_base_server.py).
    remaining: float | None = context.time_remaining()
    return None if remaining is None else asyncio.get_running_loop().time() + remaining


def mark_of(call: UnaryCall, size: int) -> CallMark:
    """Of a call over the front, whose request has so many bytes."""
    head = call.head
    return CallMark(head.caller, id_bytes(call.request_id), head.attempt, 0, size, call.deadline)


def mark_of_context(context: Context, size: int) -> CallMark:
    """The same of a call that has a context."""
    attempt = read_attempt((header(context, ATTEMPT_HEADER) or "").encode())
    return CallMark(caller(context), request_id(context), attempt, 0, size, deadline(context))


def encoded(headers: Sequence[tuple[str, str]]) -> Headers:
    """As they are sent."""
    return tuple((name.encode(), value.encode()) for name, value in headers)


def decoded(headers: Headers) -> tuple[tuple[str, str], ...]:
    """As grpcio takes them."""
    return tuple((name.decode(), value.decode()) for name, value in headers)
