"""What a request may use at most; or, once it has ended, what it did use."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """In units that are counted."""

    input_tokens: int = 0
    cached_tokens: int = 0  # of the input tokens
    output_tokens: int = 0
    rows: int = 0
    compute_seconds: float = 0.0
