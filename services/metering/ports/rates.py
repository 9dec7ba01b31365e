"""What a version costs a project now."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """In 10^-12 of the currency for one unit."""

    request: int = 0
    input_token: int = 0  # computed
    cached_token: int = 0
    output_token: int = 0
    compute_second: int = 0
    row: int = 0


class RateBook(Protocol):
    """Prices as the ledger will charge them. Asked on the event loop, so without waiting."""

    @property
    def revision(self) -> str:
        """Another one whenever rates may have changed, by a new price or because time has passed."""
        ...

    def rates(self, project: str, model: str, version: str) -> Rates:
        """As of now."""
        ...
