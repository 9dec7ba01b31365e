"""One of the texts that continue a prompt, as the scheduler sees it: tokens, how many are computed, its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from services.worker.llm.domain.generation import TokenId
from services.worker.llm.domain.kv_cache import BlockTable

if TYPE_CHECKING:
    from services.worker.llm.domain.waiting_line import Share


class Phase(Enum):
    """Where it is in its life."""

    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


_MAY_FOLLOW = {
    Phase.WAITING: {Phase.RUNNING, Phase.ENDED},
    Phase.RUNNING: {Phase.WAITING, Phase.ENDED},  # back to waiting: preempted
    Phase.ENDED: set[Phase](),
}


@dataclass(slots=True, eq=False, kw_only=True)
class Continuation:
    """Equal only to itself. What is not computed of its tokens is computed next; then one more token is chosen."""

    number: int  # grows with each: the order of arrival
    index: int  # which of the request's texts
    priority: int
    # Prompt, then what was chosen. The texts of a request share their prompt until they begin.
    tokens: tuple[TokenId, ...] | list[TokenId]
    prompt_tokens: int
    table: BlockTable
    share: Share  # of its tenant
    phase: Phase = Phase.WAITING
    computed: int = 0  # leading tokens whose keys and values are in its blocks
    found: int | None = None  # tokens that were in the cache when it first began; None: it hasn't
    preemptions: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Most urgent first."""
        return self.priority, self.number

    @property
    def lacks(self) -> int:
        """Tokens to compute before the next can be chosen."""
        return len(self.tokens) - self.computed

    def move(self, phase: Phase) -> None:
        """It goes on to another part of its life."""
        assert phase in _MAY_FOLLOW[self.phase], f"{phase.name} after {self.phase.name}"
        self.phase = phase
