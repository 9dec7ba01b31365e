"""Says how likely texts are of some kind: offensive, say."""

from collections.abc import Mapping, Sequence
from typing import Protocol

Scores = Mapping[str, float]  # 0 to 1, by label


class Scorer(Protocol):
    """Named by the setting `safety_scorer`; used by one thread."""

    @property
    def labels(self) -> Sequence[str]:
        """All that it gives; few, and always the same."""
        ...

    def score(self, texts: Sequence[str]) -> Sequence[Scores]:
        """Of each text. Blocks; should free the GIL while it computes."""
        ...
