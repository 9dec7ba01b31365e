"""JSON bodies of Triton's repository methods."""

from typing import Any

import orjson

from services.rpc.errors import InvalidArgumentError
from services.rpc.names import shown


def read_body(body: bytes) -> dict[str, Any]:
    """The body's object; a body without anything is an empty one."""
    if not body.strip():
        return {}
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError.of_field("body", f"is no JSON: {error}") from error
    if not isinstance(said, dict):
        raise InvalidArgumentError.of_field("body", f"{_given(said)}; allowed: a JSON object")
    return said


def read_ready(said: dict[str, Any]) -> bool:
    """Whether only what is READY is wanted."""
    ready = said.get("ready", False)
    if not isinstance(ready, bool):
        raise InvalidArgumentError.of_field("ready", f"{_given(ready)}; allowed: true or false")
    return ready


def read_parameters(said: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a load or an unload."""
    parameters = said.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InvalidArgumentError.of_field(
            "parameters", f"{_given(parameters)}; allowed: an object"
        )
    return parameters


def _given(value: object) -> str:
    return shown(orjson.dumps(value).decode())
