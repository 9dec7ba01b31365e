"""Where an engine's measurements go."""

from typing import Protocol

from services.worker.llm.domain.engine_facts import RequestFacts, StepFacts


class EngineMeter(Protocol):
    """Of one engine; called on the event loop, between steps: a few microseconds each."""

    def stepped(self, facts: StepFacts) -> None:
        """A step was computed, or failed."""
        ...

    def ended(self, facts: RequestFacts) -> None:
        """An accepted request has ended; called once for each."""
        ...
