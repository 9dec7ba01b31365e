"""A request for text, and what its caller is told: the words between servicers and the engine."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from services.rpc.errors import InferplaneError
from services.worker.domain.request_use import RequestUse
from services.worker.llm.domain.sampling_settings import SamplingSettings

RequestId = NewType("RequestId", int)
TokenId = int


class FinishReason(Enum):
    """Why a text ended."""

    STOP = "stop"  # end of text, or a stop string or token
    LENGTH = "length"  # max_tokens, or the end of the context
    BUDGET = "budget"  # what the caller's budget had left is used up


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One checked request; `sampling.n` texts continue the same prompt."""

    prompt: tuple[TokenId, ...]  # never empty; all of them tokens of the model
    characters: int = 0  # of the prompt's text
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    tenant: str = ""
    priority: int = 0  # lower goes first
    arrived: float = 0.0  # of the monotonic clock
    deadline: float | None = None  # of the same; None: none
    use: RequestUse | None = None  # is noted there; None: nobody asks


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the likeliest tokens at a place."""

    token_id: TokenId
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A chosen token and how likely the model itself found it."""

    token_id: TokenId
    logprob: float
    top: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one step added to one of the texts."""

    index: int  # which of the n
    text: str = ""  # whole characters
    token_ids: tuple[TokenId, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None  # on the last piece of an index
    stop_text: str = ""  # the stop string that ended it


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a request used and how long it took, told with its end. Times in seconds from its arrival."""

    prompt_tokens: int
    completion_tokens: int  # of all n
    cached_prompt_tokens: int
    queue_seconds: float | None = None  # until the first step that computed something of it
    first_token_seconds: float | None = None
    per_token_seconds: float | None = None  # mean after the first token, of the slowest of n
    total_seconds: float = 0.0
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class Update:
    """What a caller is told after a step. The last one has a summary, and an error if it did not end well."""

    pieces: tuple[Piece, ...] = ()
    summary: Summary | None = None
    error: InferplaneError | None = None
