"""Rules for fields that several resources share: descriptions, tags, integers in a range."""

from collections.abc import Mapping

from services.rpc.names import shown
from services.rpc.violations import Violations

MAX_DESCRIPTION = 4096  # characters
MAX_TAGS = 64
MAX_TAG_KEY = 63  # characters
MAX_TAG_VALUE = 255  # characters


def check_description(violations: Violations, value: str) -> str:
    """A description within its limit."""
    violations.require(
        len(value) <= MAX_DESCRIPTION,
        "description",
        f"{len(value)} characters; allowed: at most {MAX_DESCRIPTION}",
    )
    return value


def check_tags(violations: Violations, field: str, tags: Mapping[str, str]) -> Mapping[str, str]:
    """Labels within their limits, in the order of their keys."""
    violations.require(
        len(tags) <= MAX_TAGS, field, f"{len(tags)} entries; allowed: at most {MAX_TAGS}"
    )
    for key, value in tags.items():
        violations.require(
            1 <= len(key) <= MAX_TAG_KEY,
            field,
            f"key {shown(key)} has {len(key)} characters; allowed: 1 to {MAX_TAG_KEY}",
        )
        violations.require(
            len(value) <= MAX_TAG_VALUE,
            f"{field}[{key[:MAX_TAG_KEY]}]",
            f"{len(value)} characters; allowed: at most {MAX_TAG_VALUE}",
        )
    return dict(sorted(tags.items()))


def check_range(violations: Violations, field: str, value: int, most: int) -> int:
    """An integer from 0 to `most`."""
    violations.require(0 <= value <= most, field, f"{value} is out of range; allowed: 0 to {most}")
    return value
