"""JSON of OpenAI's requests, field by field: strict in types, liberal in fields that nobody here knows."""

from collections.abc import Mapping
from typing import Any, TypeVar

import orjson

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.rpc.names import shown

T = TypeVar("T")

_MOST_VIOLATIONS = 32  # that are told; of a million wrong elements nobody wants to hear

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    str: "a string",
    dict: "an object",
    list: "a list",
}


def parse(body: bytes) -> Mapping[str, Any]:
    """The body's object. Raises InvalidArgumentError."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(
            f"the body is not valid JSON: {error}", reason="INVALID_JSON"
        ) from error
    if not isinstance(said, dict):
        raise InvalidArgumentError("the body must be a JSON object", reason="INVALID_JSON")
    return said


def model(said: Mapping[str, Any]) -> str:
    """Whom the request is for. Raises InvalidArgumentError."""
    fields = Fields(said, [])
    name = fields.get("model", str)
    if name is None and not fields.violations:
        fields.wrong("model", "missing; allowed: an endpoint, or endpoint@version")
    if name is None:
        raise InvalidArgumentError.of_fields(fields.violations)
    return name


class Fields:
    """An object's fields; what is wrong with them is collected. `null` means: not given."""

    def __init__(
        self, said: Mapping[str, Any], violations: list[FieldViolation], prefix: str = ""
    ) -> None:
        self._said = said
        self._prefix = prefix
        self.violations = violations

    def get(self, name: str, kind: type[T]) -> T | None:
        """The value, if it is there and of this type."""
        value = self._said.get(name)
        if value is None or type(value) is kind:
            return value
        self.wrong(name, f"{given(value)}; allowed: {_WORDS[kind]}")
        return None

    def raw(self, name: str) -> Any:
        """The value as it is; None: not given."""
        return self._said.get(name)

    def inner(self, name: str) -> "Fields":
        """The fields of an object in a field."""
        return Fields(self.get(name, dict) or {}, self.violations, f"{self._prefix}{name}.")

    def wrong(self, name: str, description: str) -> None:
        """A field breaks a rule. Raises InvalidArgumentError if that is one too many to look any further."""
        self.violations.append(FieldViolation(f"{self._prefix}{name}", description))
        if len(self.violations) >= _MOST_VIOLATIONS:
            raise InvalidArgumentError.of_fields(self.violations)

    def refuse(self, name: str, allowed: str = "") -> None:
        """A field that would change what is answered, and is not supported; `allowed`: what of it is."""
        self.wrong(name, f"not supported here; allowed: {allowed or 'leave it out'}")


def given(value: object) -> str:
    """A value as messages show it."""
    try:
        return f"{shown(orjson.dumps(value).decode())} given"
    except TypeError:  # it is of no JSON type
        return "something else given"
