"""What the edge says itself where a call leads nowhere, with the status that each protocol has for it."""

from typing import Any

from envoy.config.route.v3.route_components_pb2 import Route

from services.router.resources import edge, reply

_GRPC_INVALID_ARGUMENT, _GRPC_NOT_FOUND, _GRPC_FAILED_PRECONDITION = "3", "5", "9"


def plain(status: int, text: str) -> Any:
    """A refusal with a fixed text."""
    return Route(
        match={"prefix": "/"},
        direct_response={"status": status, "body": {"inline_string": text}},
    )


def not_here() -> Any:
    """A method that is not for clients."""
    return plain(403, "only services may call this; not at the edge")


def no_model() -> Any:
    """Text is asked of nobody."""
    problem = f"%DYNAMIC_METADATA({edge.OPENAI_METADATA}:{edge.OPENAI_PROBLEM})%"
    text = f"the request must name an endpoint, in JSON as `model`{problem}"
    return _refused_as(_GRPC_INVALID_ARGUMENT, _formatted(400, text))


def no_such_model() -> Any:
    """NOT_FOUND in the words of callers who ask for text."""
    text = f"the model '{reply.state(edge.ENDPOINT_STATE)}'{_pin(' in version ')} does not exist, or gets no traffic"
    return _refused_as(_GRPC_NOT_FOUND, _formatted(404, text))


def no_language_model() -> Any:
    """Text is asked of a model that computes tensors."""
    text = f"the model '{reply.state(edge.ENDPOINT_STATE)}' is not a language model; call it with ModelInfer"
    return _refused_as(_GRPC_FAILED_PRECONDITION, _formatted(400, text))


def no_such_path() -> Any:
    """Not a path of the edge, in any protocol."""
    return plain(404, "there is no such method or path here")


def no_such_endpoint() -> Any:
    """NOT_FOUND that names what was asked for. (From 404 alone that would be UNIMPLEMENTED.)"""
    pin = _pin(" or sends no traffic to its version ")
    text = f"endpoint '{reply.state(edge.ENDPOINT_STATE)}' does not exist{pin}"
    return _refused_as(_GRPC_NOT_FOUND, _formatted(404, text))


def _pin(before: str) -> str:
    """The version that was asked for, with words before it; nothing if none was."""
    words = f"%CEL('{edge.VERSION_STATE}' in filter_state ? '{before}' : '')%"
    return f"{words}{reply.state(edge.VERSION_STATE)}"


def _refused_as(status: str, route: Any) -> Any:
    """The same with a gRPC status, which from HTTP's alone Envoy would make another of."""
    route.response_headers_to_add.add(
        header={"key": "grpc-status", "value": status}, append_action="OVERWRITE_IF_EXISTS_OR_ADD"
    )
    return route


def _formatted(status: int, text: str) -> Any:
    """A refusal whose text says what the call asked for."""
    return Route(
        match={"prefix": "/"},
        direct_response={
            "status": status,
            "body_format": {
                "text_format_source": {"inline_string": text},
                "omit_empty_values": True,
            },
        },
    )
