"""A reply that Envoy makes itself: its cause, and what the caller is told in each protocol."""

from dataclasses import dataclass
from typing import Any

from envoy.extensions.access_loggers.filters.cel.v3.cel_pb2 import ExpressionFilter

from services.router.resources import wire

_SHOWN = 80  # characters of a client's name for something that an answer repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One cause and what the caller is told."""

    cause: dict[str, Any] | None  # Envoy's access log filter; None: any
    text: str
    http_status: int | None = None  # None: as Envoy has it, likewise the next
    grpc_status: str | None = None
    headers: tuple[tuple[str, str], ...] = ()  # for gRPC's clients
    all_headers: tuple[tuple[str, str], ...] = ()  # for all
    type: str = "server_error"  # in OpenAI's words, likewise the next
    code: str | None = None
    openai: str = ""  # text for OpenAI's clients, where it differs


# A message that says it is compressed; a header alone, with messages as they are, is no reason to refuse.
COMPRESSED = {
    "header_filter": {
        "header": {
            "name": "grpc-encoding",
            "string_match": {"exact": "identity"},
            "invert_match": True,
        }
    }
}


def all_of(*filters: dict[str, Any] | None) -> dict[str, Any]:
    """A cause: all of these; None: any."""
    given = [filter_ for filter_ in filters if filter_ is not None]
    return {"and_filter": {"filters": given}} if len(given) > 1 else given[0]


def of_flags(*flags: str) -> dict[str, Any]:
    """A cause: one of Envoy's response flags."""
    return {"response_flag_filter": {"flags": list(flags)}}


def of_status(status: int) -> dict[str, Any]:
    """A cause: the HTTP status."""
    value = {"default_value": status, "runtime_key": "inferplane.local_reply_status"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


def of_details(details: str) -> dict[str, Any]:
    """A cause: what Envoy's response code details begin with."""
    expression = f"response.code_details.startsWith('{details}')"
    return {
        "extension_filter": wire.extension(
            "envoy.access_loggers.extension_filters.cel", ExpressionFilter(expression=expression)
        )
    }


def state(key: str) -> str:
    """Envoy's format for a filter state, cut where it gets long."""
    return f"%FILTER_STATE({key}:PLAIN):{_SHOWN}%"
