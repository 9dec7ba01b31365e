"""What an engine measures: of each step, and of each request when it ends."""

from dataclasses import dataclass

from services.rpc.errors import Kind
from services.worker.llm.domain.generation import FinishReason, Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One step. Times in seconds."""

    requests: int  # texts that it computed something of
    prompt_tokens: int  # computed of prompts, and again of texts that were preempted
    generated_tokens: int  # chosen
    seconds: float  # of the runner
    own_seconds: float  # of scheduling, sampling and text
    sampling_seconds: float = 0.0  # of them, of choosing tokens
    waiting: int = 0  # texts that it left waiting
    running: int = 0  # texts that held blocks
    slots: int = 0  # texts that may run at once
    preemptions: int = 0  # texts that gave up their blocks for it
    prefix_queries: int = 0  # tokens of prompts that were looked up in the cache when they began
    prefix_hits: int = 0  # of them, found
    queued: tuple[float, ...] = ()  # of requests that began with it: time since arrival
    first_tokens: tuple[float, ...] = ()  # of texts that got their first: time since arrival
    token_gaps: tuple[float, ...] = ()  # of the others: time since the token before
    failed: bool = False  # the runner raised an error


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """One accepted request that has ended, in whatever way."""

    tenant: str
    summary: Summary
    finish_reasons: tuple[FinishReason, ...] = ()  # of its texts, if it ended well
    error: Kind | None = None  # CANCELLED: its caller has gone
