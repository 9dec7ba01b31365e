"""What a turn of the engine has to tell: whom, and of what was measured."""

from dataclasses import dataclass, field

from services.worker.llm.domain.engine_facts import RequestFacts, StepFacts
from services.worker.llm.domain.generation import RequestId, Update
from services.worker.llm.ports.engine import EngineLoad


@dataclass(slots=True)
class StepReport:
    """Handed to the event loop after each turn, and not touched again."""

    updates: list[tuple[RequestId, Update]] = field(default_factory=list)
    began: list[RequestId] = field(default_factory=list)  # wait no longer for their first step
    step: StepFacts | None = None
    ended: list[RequestFacts] = field(default_factory=list)
    load: EngineLoad | None = None
