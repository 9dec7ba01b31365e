"""A failure as the terminal shows it: clear lines, or JSON for a program. Light: it is loaded with every command."""

import json

from services.cli.domain.exit_code import status_of
from services.rpc.errors import InferplaneError


def as_lines(error: InferplaneError) -> str:
    """One line that says what is wrong, and one more for each field if there are several."""
    lines = [f"error: {error.message}"]
    if len(error.violations) > 1 or not _is_in(error):
        lines += [f"  {v.field}: {v.description}" for v in error.violations]
    if error.retry_after is not None:
        lines.append(f"  try again in {error.retry_after:g} s")
    return "\n".join(lines)


def as_json(error: InferplaneError) -> str:
    """The failure as one line of JSON."""
    value = {
        "status": status_of(error),
        "reason": error.reason,
        "message": error.message,
        "metadata": error.metadata,
        "violations": [{"field": v.field, "description": v.description} for v in error.violations],
        "retry_after": error.retry_after,
    }
    return json.dumps({"error": value}, ensure_ascii=False)


def _is_in(error: InferplaneError) -> bool:
    """Whether the message already tells its only violation."""
    return all(v.description in error.message for v in error.violations)
