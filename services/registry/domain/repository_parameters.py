"""Parameters of Triton's load and unload: what they mean here, and which are refused."""

from collections.abc import Mapping
from typing import TypeAlias

from services.rpc.names import check_id, shown
from services.rpc.violations import Violations

Parameters: TypeAlias = Mapping[str, object]

_LOAD_ALLOWED = "version (a version id)"
_UNLOAD_ALLOWED = "version (a version id), unload_dependents (false)"
_NO_OVERRIDE = (
    "is refused: a version's files and settings never change; allowed: push another version"
    " (inferplane models push), then load that"
)


def version_to_load(parameters: Parameters) -> str | None:
    """The version that is asked for; None: the newest. InvalidArgumentError for all that is refused."""
    violations = Violations()
    version = None
    for name, value in sorted(parameters.items()):
        field = _field(name)
        if name == "version":
            version = _version(violations, field, value)
        elif name == "config" or name.startswith("file:"):
            violations.add(field, _NO_OVERRIDE)
        else:
            violations.add(field, f"is unknown; allowed: {_LOAD_ALLOWED}")
    violations.raise_if_any()
    return version


def version_to_unload(parameters: Parameters) -> str | None:
    """The version that is asked for; None: all. InvalidArgumentError for all that is refused."""
    violations = Violations()
    version = None
    for name, value in sorted(parameters.items()):
        field = _field(name)
        if name == "version":
            version = _version(violations, field, value)
        elif name == "unload_dependents":
            violations.require(
                value is False,
                field,
                f"{_given(value)}; allowed: false, no model here depends on another",
            )
        else:
            violations.add(field, f"is unknown; allowed: {_UNLOAD_ALLOWED}")
    violations.raise_if_any()
    return version


def _field(name: str) -> str:
    return f"parameters[{shown(name)}]"


def _version(violations: Violations, field: str, value: object) -> str | None:
    """A version id; version numbers may come as numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        violations.add(field, f"{_given(value)}; allowed: a version id as text")
        return None
    return violations.take(check_id, field, value)


def _given(value: object) -> str:
    """A value in a message."""
    return str(value).lower() if isinstance(value, bool) else shown(str(value))
