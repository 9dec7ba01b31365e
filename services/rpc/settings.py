"""The services' reader of the environment: turns INFERPLANE_* variables into frozen settings, or says what is wrong."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

if TYPE_CHECKING:
    from services.rpc.tls import Security

PREFIX = "INFERPLANE_"

S = TypeVar("S", bound="Settings")


class SettingsError(Exception):
    """A variable's value is not what it must be; the text names variable, value and expectation."""


class Settings(BaseSettings):
    """Base of every service's settings: one field is one variable, `INFERPLANE_` + the field's name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    # Folder with cert.pem, key.pem and ca.pem: TCP is TLS then, and peers must show a certificate. None: plain.
    tls_dir: Path | None = None
    insecure_tcp: bool = False  # plain TCP beyond this machine is wanted

    def security(self) -> "Security":
        """How TCP is guarded; reads the certificate. Raises FailedPreconditionError."""
        # Commands that only start processes read settings too, and should begin at once.
        from services.rpc.tls import Security, TlsFiles

        return Security(TlsFiles(self.tls_dir) if self.tls_dir else None, self.insecure_tcp)


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
