"""All that is counted of one engine: plain numbers, touched once for each step and once for each request.

Bounds of the histograms are those of OpenTelemetry's conventions for generative models.
"""

from collections import Counter
from dataclasses import dataclass, field

from services.worker.domain.histogram import Histogram
from services.worker.llm.domain.engine_facts import RequestFacts, StepFacts

_DURATION = tuple(0.01 * 2**n for n in range(14))
_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0),
)
_NEXT_TOKEN = (
    *(0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.75, 1.0, 2.5),
)
_TOKENS = tuple(float(4**n) for n in range(11))
_BATCH = tuple(float(2**n) for n in range(9))


def _of(bounds: tuple[float, ...]) -> Histogram:
    return Histogram(bounds)


@dataclass(slots=True)
class EngineStatistics:
    """An EngineMeter. Totals since the version came to this worker."""

    # Steps.
    steps: int = 0
    failed_steps: int = 0
    runner_seconds: float = 0.0
    own_seconds: float = 0.0  # of scheduling, sampling and text
    sampling_seconds: float = 0.0  # of them, of choosing tokens
    idle_slot_seconds: float = 0.0  # places for texts that were empty while some waited
    prompt_tokens: int = 0  # computed
    generated_tokens: int = 0
    preemptions: int = 0
    prefix_queries: int = 0  # tokens
    prefix_hits: int = 0
    batch: Histogram = field(default_factory=lambda: _of(_BATCH))  # texts of a step
    step_tokens: Histogram = field(default_factory=lambda: _of(_TOKENS))
    queue_seconds: Histogram = field(default_factory=lambda: _of(_DURATION))
    first_token_seconds: Histogram = field(default_factory=lambda: _of(_FIRST_TOKEN))
    next_token_seconds: Histogram = field(default_factory=lambda: _of(_NEXT_TOKEN))
    # Requests.
    finished: Counter[str] = field(default_factory=Counter)  # texts, by why they ended
    failed: Counter[str] = field(default_factory=Counter)  # requests, by the kind of their error
    request_seconds: Histogram = field(default_factory=lambda: _of(_DURATION))
    per_token_seconds: Histogram = field(default_factory=lambda: _of(_NEXT_TOKEN))
    request_prompt_tokens: Histogram = field(default_factory=lambda: _of(_TOKENS))
    request_generated_tokens: Histogram = field(default_factory=lambda: _of(_TOKENS))

    def stepped(self, facts: StepFacts) -> None:
        """A step was computed, or failed."""
        self.steps += 1
        self.failed_steps += facts.failed
        self.runner_seconds += facts.seconds
        self.own_seconds += facts.own_seconds
        self.sampling_seconds += facts.sampling_seconds
        if facts.waiting:
            idle = facts.slots - facts.running
            self.idle_slot_seconds += idle * (facts.seconds + facts.own_seconds)
        self.prompt_tokens += facts.prompt_tokens
        self.generated_tokens += facts.generated_tokens
        self.preemptions += facts.preemptions
        self.prefix_queries += facts.prefix_queries
        self.prefix_hits += facts.prefix_hits
        self.batch.add(facts.requests)
        self.step_tokens.add(facts.prompt_tokens + facts.generated_tokens)
        self.queue_seconds.add_all(facts.queued)
        self.first_token_seconds.add_all(facts.first_tokens)
        self.next_token_seconds.add_all(facts.token_gaps)

    def ended(self, facts: RequestFacts) -> None:
        """An accepted request has ended."""
        summary = facts.summary
        if facts.error is not None:
            self.failed[facts.error.value.lower()] += 1
        self.finished.update(reason.value for reason in facts.finish_reasons)
        self.request_seconds.add(summary.total_seconds)
        self.request_prompt_tokens.add(summary.prompt_tokens)
        self.request_generated_tokens.add(summary.completion_tokens)
        if summary.per_token_seconds is not None:
            self.per_token_seconds.add(summary.per_token_seconds)
