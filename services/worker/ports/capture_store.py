"""Keeps captured texts for as long as they may be kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CapturedLine:
    """One call, redacted."""

    line: bytes  # JSON without a line's end
    retention_days: int


class CaptureStore(Protocol):
    """Used by one thread; blocks."""

    def keep(self, lines: Sequence[CapturedLine]) -> None:
        """Raises OSError if there is no room; some of them may be kept then."""
        ...

    def tidy(self) -> None:
        """Remove what is too old, or too much."""
        ...
