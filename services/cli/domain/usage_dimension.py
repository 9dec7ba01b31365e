"""What reports have lines for, as it is typed: `model`, `day`, `tag:team`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from services.cli.domain.exit_code import UsageError

WORDS = ("model", "version", "project", "key", "endpoint", "hour", "day", "month", "pool")
_TAG = "tag"
_MOST = 2


@dataclass(frozen=True, slots=True)
class Dimensions:
    """One or two."""

    by: tuple[str, ...]
    tag: str  # whose values; empty unless one of them is `tag`

    @property
    def titles(self) -> tuple[str, ...]:
        """What the columns are called."""
        return tuple(self.tag if word == _TAG else word for word in self.by)

    def refuse_chart(self) -> NoReturn:
        raise UsageError("--chart draws one dimension; say --by once")


def parse_dimensions(typed: Sequence[str]) -> Dimensions:
    """`model`, or `tag:team`; each once."""
    words, tag = [], ""
    for each in typed:
        word, colon, key = each.partition(":")
        if word == _TAG and key:
            tag = key
        elif colon or word not in WORDS:
            allowed = ", ".join(WORDS)
            raise UsageError(f"--by {each!r}: allowed: {allowed} and tag:KEY, KEY being a tag's")
        words.append(word)
    if len(words) > _MOST or len(set(words)) < len(words):
        raise UsageError(f"--by: allowed: at most {_MOST}, each another one")
    return Dimensions(tuple(words), tag)
