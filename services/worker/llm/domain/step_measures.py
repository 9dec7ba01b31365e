"""What is counted while a step is planned, computed and written."""

from dataclasses import dataclass, field

from services.worker.llm.domain.engine_facts import StepFacts
from services.worker.llm.domain.step_plan import StepPlan


@dataclass(slots=True)
class StepMeasures:
    """Of one step; times are of the monotonic clock, unless they are said to be spans."""

    begun: float
    planned: float = 0.0
    computed: float = 0.0
    sampling: float = 0.0  # a span: of choosing tokens
    waiting: int = 0
    running: int = 0
    generated: int = 0
    failed: bool = False
    queued: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)
    token_gaps: list[float] = field(default_factory=list)

    def facts(self, plan: StepPlan, slots: int, now: float) -> StepFacts:
        """The step is over."""
        seconds = self.computed - self.planned
        return StepFacts(
            requests=len(plan.parts),
            prompt_tokens=plan.prompt_tokens,
            generated_tokens=self.generated,
            seconds=seconds,
            own_seconds=now - self.begun - seconds,
            sampling_seconds=self.sampling,
            waiting=self.waiting,
            running=self.running,
            slots=slots,
            preemptions=plan.preempted,
            prefix_queries=plan.prefix_queries,
            prefix_hits=plan.prefix_hits,
            queued=tuple(self.queued),
            first_tokens=tuple(self.first_tokens),
            token_gaps=tuple(self.token_gaps),
            failed=self.failed,
        )
