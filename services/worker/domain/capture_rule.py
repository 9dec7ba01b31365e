"""Which calls' texts are kept, how much of them and for how long: nothing unless a rule says so."""

from collections.abc import Sequence
from dataclasses import dataclass

ALL = "*"

_DRAW_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRule:
    """Calls of these endpoints and of these projects; both must fit."""

    endpoints: frozenset[str]  # ids, or `*`
    projects: frozenset[str]
    fraction: float = 1.0  # of the calls, 0 to 1
    max_bytes: int = 64 * 1024  # of prompts, and as many of answers
    retention_days: int = 7

    def fits(self, endpoint: str, project: str) -> bool:
        """Whether it is about such calls."""
        return _has(self.endpoints, endpoint) and _has(self.projects, project)


def rule_for(
    rules: Sequence[CaptureRule], endpoint: str, project: str, request_id: bytes
) -> CaptureRule | None:
    """The first that fits, if the request is among its fraction: the same on every worker that the request comes to."""
    for rule in rules:
        if rule.fits(endpoint, project):
            return rule if _draw(request_id) < rule.fraction else None
    return None


def _has(ids: frozenset[str], wanted: str) -> bool:
    return ALL in ids or wanted in ids


def _draw(request_id: bytes) -> float:
    """Of a random id: 0 to 1, evenly. Its end, since its beginning may tell of a version or of tracing."""
    return int.from_bytes(request_id[-_DRAW_BYTES:], "big") / 2.0 ** (8 * _DRAW_BYTES)
