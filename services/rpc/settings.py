"""The only reader of the environment: turns INFERPLANE_* variables into frozen settings, or says what is wrong."""

import os
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "INFERPLANE_"

S = TypeVar("S", bound="Settings")


class SettingsError(Exception):
    """A variable's value is not what it must be; the text names variable, value and expectation."""


class Settings(BaseSettings):
    """Base of every service's settings: one field is one variable, `INFERPLANE_` + the field's name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")


def load(kind: type[S], **overrides: Any) -> S:
    """Read settings of one kind; `overrides` win over the environment. Raises SettingsError."""
    try:
        return kind(**overrides)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            name = PREFIX + ".".join(str(part) for part in problem["loc"]).upper()
            lines.append(f"{name}={problem['input']!r}: {problem['msg']}")
        raise SettingsError("\n".join(lines)) from error


def environment_for_children(**variables: str) -> dict[str, str]:
    """This process's environment with `variables` (without prefix) set for a child."""
    return {**os.environ, **{PREFIX + name.upper(): value for name, value in variables.items()}}
