"""Rules for fields that projects and keys share: texts for people and tags."""

from collections.abc import Mapping

from services.rpc.names import shown
from services.rpc.violations import Violations

MAX_TEXT = 128  # characters of a display name or a label
MAX_TAGS = 32
MAX_TAG = 63  # characters of a tag's key, and of its value


def check_text(violations: Violations, field: str, value: str) -> str:
    """A text for people: short, on one line."""
    violations.require(
        len(value) <= MAX_TEXT, field, f"{len(value)} characters; allowed: at most {MAX_TEXT}"
    )
    violations.require(
        not value or value.isprintable(),
        field,
        f"{shown(value)} has control characters; allowed: printable ones",
    )
    return value


def check_tags(violations: Violations, field: str, tags: Mapping[str, str]) -> Mapping[str, str]:
    """Tags within their limits, in the order of their keys."""
    violations.require(
        len(tags) <= MAX_TAGS, field, f"{len(tags)} entries; allowed: at most {MAX_TAGS}"
    )
    for key, value in tags.items():
        for what, text in (("key", key), ("value", value)):
            violations.require(
                1 <= len(text) <= MAX_TAG and text.isprintable(),
                f"{field}[{key[:MAX_TAG]}]",
                f"{what} {shown(text)}; allowed: 1 to {MAX_TAG} printable characters",
            )
    return dict(sorted(tags.items()))
