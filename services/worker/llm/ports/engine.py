"""What servicers ask text of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from services.worker.llm.domain.generation import GenerationRequest, RequestId, Update

Deliver = Callable[[Update], None]  # called on the event loop; never raises


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """How busy an engine is, as of the last step."""

    waiting: int  # texts: each of a request's `n`; of requests that have just come, one
    running: int  # texts
    blocks: int  # of the cache
    used_blocks: int  # held by requests
    cached_blocks: int  # kept for later ones
    kv_usage: float  # 0 to 1: used blocks of all
    waste: float  # 0 to 1: places in used blocks that hold no token


class TextEngine(Protocol):
    """Continues prompts. Calls come from the event loop; `load` and `stuck_for` may be asked from other threads."""

    def submit(self, request: GenerationRequest, deliver: Deliver) -> RequestId:
        """Take a request in; `deliver` hears of it until an update with a summary or an error, which is the last.

        Raises InvalidArgumentError if it could never fit (with the sizes), ResourceExhaustedError with a retry hint if
        too much waits, UnavailableError once the engine closes.
        """
        ...

    def abort(self, request: RequestId) -> None:
        """The caller has gone: nothing is delivered any more, and what it holds is free within one step."""
        ...

    def load(self) -> EngineLoad:
        """How busy it is."""
        ...

    def stuck_for(self, patience: float) -> float | None:
        """How long a step has lasted if that is longer than `patience` seconds and than steps may; None: none has."""
        ...
