"""Update masks: which fields of a resource a change is about."""

from collections.abc import Sequence

from services.rpc.errors import InvalidArgumentError
from services.rpc.names import shown


def masked_fields(paths: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """The fields that an update mask names; all if it is empty. Unknown paths are refused."""
    unknown = sorted(set(paths) - set(allowed))
    if unknown:
        given = ", ".join(shown(path) for path in unknown)
        raise InvalidArgumentError.of_field(
            "update_mask", f"no such field: {given}; allowed: {', '.join(allowed)}"
        )
    return tuple(field for field in allowed if not paths or field in paths)
