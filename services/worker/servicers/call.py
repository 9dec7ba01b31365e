"""What a call's context says: where Envoy routed it, until when it may take, which HTTP headers came."""

import asyncio
from typing import Any

import grpc

from services.worker.domain.routing import Asked

VERSION_HEADER = "x-inferplane-version"
ENDPOINT_HEADER = "x-inferplane-endpoint"
TENANT_HEADER = "x-inferplane-project"  # the edge sets it
ATTEMPT_HEADER = "x-envoy-attempt-count"

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


def deadline(context: Context) -> float | None:
    """When the caller stops waiting, as a time of the monotonic clock; None: never."""
    # The stubs say float; without a deadline it is None (grpc/aio/_base_server.py).
    remaining: float | None = context.time_remaining()
    return None if remaining is None else asyncio.get_running_loop().time() + remaining
