"""Who is let in: what could never fit is refused with the sizes, one too many with a hint when to come back."""

from dataclasses import dataclass

from services.rpc.errors import (
    FieldViolation,
    InferplaneError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from services.worker.llm.domain.generation import GenerationRequest

_SHORTEST_RETRY = 0.05  # seconds
# A tenant may have so many times as many requests waiting as places are left, so that others always find one.
_TIMES_FREE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What one request may ask for at most. All checks raise, or change nothing."""

    context_length: int  # tokens of prompt and answer together
    block_size: int
    # That one text may hold, alone on the machine: of the cache, and of its tenant's quota.
    text_blocks: int
    cache_blocks: int
    vocabulary_size: int  # token ids are below it
    max_output_tokens: int  # n times max_tokens
    queue_requests: int

    def room(self, request: GenerationRequest) -> int:
        """How many tokens each of its texts may have; raises InvalidArgumentError if that is none or too few."""
        prompt, settings = len(request.prompt), request.sampling
        if not prompt:
            raise InvalidArgumentError.of_field("prompt", "is empty; at least one token is needed")
        if min(request.prompt) < 0 or max(request.prompt) >= self.vocabulary_size:
            raise self._unknown_token(request)
        most = self.max_output_tokens // settings.n
        wanted = settings.max_tokens
        if (wanted or 1) > most:
            raise self._too_much_output(wanted or 1, settings.n)
        if prompt + (wanted or 1) > self.context_length:
            raise self._beyond_context(prompt, wanted)
        if self._blocks(prompt, wanted or 1) > self.text_blocks:
            raise self._beyond_cache(prompt, wanted)
        # The last token that is chosen is never computed, so it takes no place.
        held = self.text_blocks * self.block_size + 1
        return min(most, self.context_length - prompt, held - prompt)

    def check_queue(self, waiting: int, own: int, retry_after: float, *, tenant: str) -> None:
        """Raise ResourceExhaustedError if one more can't wait: so many do, so many `own` ones of the tenant's."""
        if waiting >= self.queue_requests:
            raise _full("the queue", "QUEUE_FULL", (waiting, self.queue_requests), retry_after)
        allowed = _TIMES_FREE * (self.queue_requests - waiting)
        if tenant and own and own + 1 > allowed:
            part = "this project's part of the queue"
            raise _full(part, "QUEUE_SHARE_FULL", (own, allowed), retry_after)

    def _blocks(self, prompt: int, output: int) -> int:
        return -(-(prompt + output - 1) // self.block_size)

    def _unknown_token(self, request: GenerationRequest) -> InferplaneError:
        unknown = next(t for t in request.prompt if not 0 <= t < self.vocabulary_size)
        return InvalidArgumentError.of_field(
            "prompt", f"{unknown} is no token's id; they are 0 to {self.vocabulary_size - 1}"
        )

    def _too_much_output(self, wanted: int, n: int) -> InferplaneError:
        return InvalidArgumentError.of_field(
            "max_tokens",
            f"{wanted} tokens for each of {n} texts are {wanted * n};"
            f" allowed together: {self.max_output_tokens}",
            max_tokens=str(wanted),
            n=str(n),
            limit=str(self.max_output_tokens),
        )

    def _beyond_context(self, prompt: int, wanted: int | None) -> InferplaneError:
        asked = f"{wanted} more (max_tokens)" if wanted else "at least one more"
        return InvalidArgumentError(
            f"the prompt has {prompt} tokens, and {asked} would go beyond the context of {self.context_length}",
            reason="CONTEXT_EXCEEDED",
            metadata=self._sizes(prompt, wanted),
            violations=_violations(prompt, wanted, f"context: {self.context_length} tokens"),
        )

    def _beyond_cache(self, prompt: int, wanted: int | None) -> InferplaneError:
        needed = self._blocks(prompt, wanted or 1)
        sizes = (
            f"{needed} blocks of {self.block_size} tokens are needed; allowed: {self.text_blocks}"
        )
        return InvalidArgumentError(
            f"the prompt has {prompt} tokens and max_tokens is {wanted or 'as many as fit'}: {sizes},"
            f" of {self.cache_blocks} that the cache has",
            reason="CACHE_EXCEEDED",
            metadata={
                **self._sizes(prompt, wanted),
                "blocks_needed": str(needed),
                "blocks_allowed": str(self.text_blocks),
                "blocks": str(self.cache_blocks),
            },
            violations=_violations(prompt, wanted, sizes),
        )

    def _sizes(self, prompt: int, wanted: int | None) -> dict[str, str]:
        return {
            "prompt_tokens": str(prompt),
            "max_tokens": str(wanted or 1),
            "context_length": str(self.context_length),
        }


def _violations(prompt: int, wanted: int | None, allowed: str) -> list[FieldViolation]:
    """The prompt is at fault by itself, or together with what was asked for."""
    if wanted is None:
        return [FieldViolation("prompt", f"{prompt} tokens; {allowed}")]
    return [FieldViolation("max_tokens", f"{wanted} after a prompt of {prompt} tokens; {allowed}")]


def _full(what: str, reason: str, sizes: tuple[int, int], retry_after: float) -> InferplaneError:
    waiting, limit = sizes
    return ResourceExhaustedError(
        f"{what} is full: {waiting} requests of it wait; allowed: {limit}",
        reason=reason,
        metadata={"unit": "requests", "waiting": str(waiting), "limit": str(limit)},
        retry_after=max(_SHORTEST_RETRY, retry_after),
    )
