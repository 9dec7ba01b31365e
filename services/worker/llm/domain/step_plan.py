"""What one step computes: drawn up text by text under a token budget, then laid out for the runner."""

from dataclasses import dataclass, field

import numpy as np

from services.worker.llm.domain.continuation import Continuation
from services.worker.llm.domain.step import Array, StepInput


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step as the scheduler decided it."""

    input: StepInput
    parts: tuple[tuple[Continuation, int], ...]  # texts, and how many of their tokens are computed
    sampled: tuple[Continuation, ...]  # those that get a token, in the order of the logits' rows
    prompt_tokens: int  # computed of prompts, and again of texts that were preempted
    preempted: int = 0
    prefix_queries: int = 0  # tokens looked up in the cache for texts that begin
    prefix_hits: int = 0


@dataclass(slots=True)
class Draft:
    """A plan in the making."""

    left: int  # tokens of the budget
    texts: dict[Continuation, int] = field(default_factory=dict)
    preempted: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0

    def add(self, text: Continuation, count: int) -> None:
        """So many of its tokens are computed."""
        self.texts[text] = count
        self.left -= count
        text.share.served += count

    def drop(self, text: Continuation) -> None:
        """It gives up its place, if it has one."""
        count = self.texts.pop(text, 0)
        self.left += count
        text.share.served -= count

    def finished(self) -> StepPlan | None:
        """As it is to be computed; None: there is nothing to do."""
        if not self.texts:
            return None
        ids: list[int] = []
        starts, past, rows, sampled = [0], [], [], []
        width, decoded = 1, 0
        for text, count in self.texts.items():
            begin = text.computed
            end = begin + count
            past.append(begin)
            ids += text.tokens[begin:end]
            starts.append(len(ids))
            width = max(width, len(text.table.blocks))
            decoded += count == 1 and begin >= text.prompt_tokens
            if end == len(text.tokens):
                rows.append(len(ids) - 1)
                sampled.append(text)
        return StepPlan(
            input=StepInput(
                ids=np.array(ids, np.int64),
                starts=np.array(starts, np.int32),
                past=np.array(past, np.int32),
                blocks=self._blocks(width),
                rows=np.array(rows, np.int64),
            ),
            parts=tuple(self.texts.items()),
            sampled=tuple(sampled),
            prompt_tokens=len(ids) - decoded,
            preempted=self.preempted,
            prefix_queries=self.prefix_queries,
            prefix_hits=self.prefix_hits,
        )

    def _blocks(self, width: int) -> Array:
        blocks = np.zeros((len(self.texts), width), np.int32)
        for row, text in zip(blocks, self.texts, strict=True):
            count = len(text.table.blocks)
            row[:count] = text.table.row[:count]
        return blocks
