"""Broken rules of one request, collected so that the caller hears of all of them at once."""

from collections.abc import Callable
from typing import TypeVar

from services.rpc.errors import FieldViolation, InvalidArgumentError

T = TypeVar("T")


class Violations:
    """A list of broken rules that grows while a request is checked."""

    def __init__(self) -> None:
        self._found: list[FieldViolation] = []

    @property
    def found(self) -> tuple[FieldViolation, ...]:
        """What was broken, in the order it was found."""
        return tuple(self._found)

    def add(self, field: str, description: str) -> None:
        """Note that `field` breaks a rule; `description` says what was given and what is allowed."""
        self._found.append(FieldViolation(field, description))

    def require(self, holds: bool, field: str, description: str) -> None:  # noqa: FBT001 - reads as a sentence
        """Note a broken rule unless it holds."""
        if not holds:
            self.add(field, description)

    def take(self, parse: Callable[[str, str], T], field: str, value: str) -> T | None:
        """`parse(field, value)`, or None with its violations noted."""
        try:
            return parse(field, value)
        except InvalidArgumentError as error:
            self._found.extend(error.violations)
            return None

    def raise_if_any(self) -> None:
        """End the request with INVALID_ARGUMENT if a rule was broken."""
        if self._found:
            raise InvalidArgumentError.of_fields(self._found)
