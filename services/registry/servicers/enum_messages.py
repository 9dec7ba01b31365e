"""Enums between messages and the domain."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from services.rpc.violations import Violations

E = TypeVar("E", bound=Enum)


def read_enum(
    violations: Violations, field: str, given: int, values: Mapping[E | None, int]
) -> E | None:
    """The member that a setting's number stands for; None if it is unset or none, which is noted."""
    for known, value in values.items():
        if value == given:
            return known
    allowed = ", ".join(f"{value} ({known.value})" for known, value in values.items() if known)
    violations.add(f"settings.{field}", f"{given}; allowed: 0 (unset), {allowed}")
    return None
