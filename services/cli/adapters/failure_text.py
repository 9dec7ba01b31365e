"""A failure as the terminal shows it: clear lines, or JSON for a program. Light: it is loaded with every command."""

import json

from services.cli.domain.exit_code import status_of
from services.rpc.errors import FieldViolation, InferplaneError


def as_lines(error: InferplaneError) -> str:
    """One line that says what is wrong, or one for each field if there are several; nothing is said twice."""
    told = [_told(violation) for violation in error.violations]
    joined = "; ".join(told)
    if len(told) > 1 and error.message.endswith(joined):
        where = error.message.removesuffix(joined)
        lines = [f"error: {where}{len(told)} fields are wrong", *(f"  {each}" for each in told)]
    else:
        lines = [f"error: {error.message}"]
        lines += [f"  {_told(v)}" for v in error.violations if v.description not in error.message]
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


def _told(violation: FieldViolation) -> str:
    """A violation with its field, which some descriptions name themselves."""
    if violation.description.startswith(f"{violation.field}:") or (
        f"`{violation.field}`" in violation.description
    ):
        return violation.description
    return f"{violation.field}: {violation.description}"
