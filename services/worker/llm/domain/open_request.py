"""An accepted request until it ends: its texts, what it has used, and when what happened."""

from dataclasses import dataclass, field

from services.worker.domain.request_use import RequestUse
from services.worker.llm.domain.continuation import Continuation
from services.worker.llm.domain.generation import (
    FinishReason,
    GenerationRequest,
    RequestId,
    Summary,
)
from services.worker.llm.domain.text_state import TextState


@dataclass(slots=True, eq=False)
class OpenText:
    """One of its texts, of the scheduler and as it is written."""

    request: "OpenRequest"
    continuation: Continuation
    state: TextState
    first_token: float | None = None  # when it was chosen
    last_token: float = 0.0

    @property
    def gap(self) -> float | None:
        """Mean seconds between its tokens; None: it has fewer than two."""
        if self.first_token is None or self.state.count < 2:
            return None
        return (self.last_token - self.first_token) / (self.state.count - 1)


@dataclass(slots=True, eq=False)
class OpenRequest:
    """Equal only to itself. `now` is of the monotonic clock."""

    id: RequestId
    request: GenerationRequest
    texts: list[OpenText] = field(default_factory=list)
    writing: int = 0  # texts that have not ended
    began: float | None = None  # the first step that computed something of it

    def finish_reasons(self) -> tuple[FinishReason, ...]:
        """Of those that have one."""
        reasons = (text.state.finish_reason for text in self.texts)
        return tuple(reason for reason in reasons if reason is not None)

    def note(self, use: RequestUse, now: float) -> None:
        """What it has used as a step begins."""
        began = now if self.began is None else self.began
        use.queue_ns = int((began - self.request.arrived) * 1e9)
        use.cached_tokens = self.texts[0].continuation.found or 0
        use.preemptions = sum(text.continuation.preemptions for text in self.texts)

    def summary(self, now: float) -> Summary:
        """What it has used until now."""
        arrived = self.request.arrived
        firsts = [text.first_token for text in self.texts if text.first_token is not None]
        gaps = [text.gap for text in self.texts if text.gap is not None]
        found = [text.continuation.found or 0 for text in self.texts]
        return Summary(
            prompt_tokens=len(self.request.prompt),
            completion_tokens=sum(text.state.count for text in self.texts),
            # What the others found are tokens that the first computed.
            cached_prompt_tokens=found[0] if found else 0,
            queue_seconds=None if self.began is None else self.began - arrived,
            first_token_seconds=min(firsts) - arrived if firsts else None,
            per_token_seconds=max(gaps, default=None),
            total_seconds=now - arrived,
            preemptions=sum(text.continuation.preemptions for text in self.texts),
        )
