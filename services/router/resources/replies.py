"""What Envoy itself answers: the same words to every client, in the client's protocol, and nothing about connections."""

from typing import Any

from services.router.resources import edge

_ENDPOINT = f"'%FILTER_STATE({edge.ENDPOINT_STATE}:PLAIN)%'"
# Envoy's response flags → what the caller is told. The first that fits wins.
_BY_FLAG: tuple[tuple[tuple[str, ...], str], ...] = (
    (("UH", "NC"), f"no worker is ready for endpoint {_ENDPOINT}; try again"),
    (("UO",), f"too many calls in flight for endpoint {_ENDPOINT}; try again"),
    (
        ("UF", "UC", "UR", "URX", "LR", "UPE"),
        f"the worker of endpoint {_ENDPOINT} went away before it answered; try again",
    ),
)


def config(max_message_bytes: int) -> dict[str, Any]:
    """The local reply configuration."""
    mappers = [_mapper(_of_flags(flags), text) for flags, text in _BY_FLAG]
    mappers.append(_mapper(_IS_GRPC, "%LOCAL_REPLY_BODY%"))
    return {
        "mappers": mappers,
        "body_format": {
            "json_format": {"error": "%LOCAL_REPLY_BODY%"},
            "content_type": "application/json",
        },
    }


_IS_GRPC = {
    "header_filter": {
        "header": {"name": "content-type", "string_match": {"prefix": "application/grpc"}}
    }
}


def _of_flags(flags: tuple[str, ...]) -> dict[str, Any]:
    return {"response_flag_filter": {"flags": list(flags)}}


def _mapper(filter_: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        "filter": filter_,
        "body_format_override": {"text_format_source": {"inline_string": text}},
    }
