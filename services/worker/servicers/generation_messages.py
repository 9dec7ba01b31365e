"""Messages of inferplane.generation.v1 to and from the engine's words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from inferplane.generation.v1 import generation_pb2 as messages
from inferplane.generation.v1 import generation_service_pb2 as service

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.worker.drivers.served_text import ServedText
from services.worker.llm.domain.generation import FinishReason, Piece, Summary, TokenLogprob
from services.worker.llm.domain.sampling_checks import SamplingLimits, fit, read_sampling
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.servicers.text_prompt import (
    ChatPrompt,
    Prompt,
    TextPrompt,
    TokenPrompt,
    limits_of,
)

Request = service.GenerateRequest | service.GenerateStreamRequest
TokenBytes = Callable[[int], bytes]

_MOST_PRIORITY = 100
# Fields whose zero is a value, and those whose zero says nothing.
_OPTIONAL: tuple[Any, ...] = ("max_tokens", "temperature", "top_p", "repetition_penalty", "seed")
_PLAIN = (
    "min_tokens",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "ignore_eos",
    "logprobs",
    "top_logprobs",
)
_FINISH = {
    None: messages.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: messages.FINISH_REASON_STOP,
    FinishReason.LENGTH: messages.FINISH_REASON_LENGTH,
    FinishReason.BUDGET: messages.FINISH_REASON_BUDGET,
}


def read(request: Request, served: ServedText) -> tuple[Prompt, str, SamplingSettings]:
    """Prompt, the name of its field, and checked settings. Raises InvalidArgumentError naming all that is wrong."""
    violations: list[FieldViolation] = []
    limits = limits_of(served)
    prompt, field = _prompt(request.prompt, limits, violations)
    if not -_MOST_PRIORITY <= request.priority <= _MOST_PRIORITY:
        allowed = f"{-_MOST_PRIORITY} to {_MOST_PRIORITY}"
        violations.append(FieldViolation("priority", f"{request.priority}; allowed: {allowed}"))
    sampling = SamplingSettings()
    try:
        sampling = read_sampling(_values(request.sampling), limits)
    except InvalidArgumentError as error:
        violations += error.violations
    if violations:
        raise InvalidArgumentError.of_fields(violations)
    return prompt, field, sampling


def _prompt(
    given: messages.Prompt, limits: SamplingLimits, violations: list[FieldViolation]
) -> tuple[Prompt, str]:
    """Nothing is copied that is too long for the context: a message may have millions of tiny elements."""
    match given.WhichOneof("prompt"):
        case "text":
            return TextPrompt(given.text), "prompt.text"
        case "token_ids":
            fit(SamplingSettings(), len(given.token_ids.ids), limits)
            return TokenPrompt(tuple(given.token_ids.ids)), "prompt.token_ids.ids"
        case "conversation":
            return _conversation(given.conversation.messages, limits, violations)
    text = "missing; allowed: text, token_ids or conversation"
    violations.append(FieldViolation("prompt", text))
    return TextPrompt(""), "prompt"


def _conversation(
    said: Sequence[messages.ChatMessage], limits: SamplingLimits, violations: list[FieldViolation]
) -> tuple[Prompt, str]:
    field, most = "prompt.conversation.messages", limits.context_length
    if not said:
        violations.append(FieldViolation(field, "empty; allowed: at least one message"))
    elif len(said) > most:
        text = f"{len(said)} messages; allowed: {most}, the context's tokens"
        violations.append(FieldViolation(field, text))
        said = ()
    return ChatPrompt(tuple({"role": m.role, "content": m.content} for m in said)), field


def _values(given: messages.SamplingSettings) -> Mapping[str, object]:
    values: dict[str, object] = {name: getattr(given, name) for name in _PLAIN}
    values |= {name: getattr(given, name) for name in _OPTIONAL if given.HasField(name)}
    # As they are: how many there are is looked at before they are copied.
    values |= {name: getattr(given, name) for name in ("logit_bias", "stop", "stop_token_ids")}
    return values | ({"n": given.n} if given.n else {})


def pieces(given: Sequence[Piece], shown: TokenBytes) -> list[messages.Piece]:
    """Pieces as messages."""
    return [messages.Piece(**_fields(piece, shown)) for piece in given]


def choices(given: Sequence[Piece], shown: TokenBytes) -> list[messages.Choice]:
    """Whole texts as messages, by index."""
    by_index = sorted(given, key=lambda piece: piece.index)
    return [messages.Choice(**_fields(piece, shown)) for piece in by_index]


def _fields(piece: Piece, shown: TokenBytes) -> dict[str, Any]:
    """Of a piece and of a whole text, which are called the same."""
    return {
        "index": piece.index,
        "text": piece.text,
        "token_ids": piece.token_ids,
        "logprobs": _logprobs(piece.logprobs, shown),
        "finish_reason": _FINISH[piece.finish_reason],
        "stop_text": piece.stop_text,
    }


def usage(summary: Summary) -> messages.Usage:
    """Counts."""
    return messages.Usage(
        prompt_tokens=summary.prompt_tokens,
        completion_tokens=summary.completion_tokens,
        cached_prompt_tokens=summary.cached_prompt_tokens,
    )


def timings(summary: Summary) -> messages.Timings:
    """Times."""
    return messages.Timings(
        queue=_duration(summary.queue_seconds),
        time_to_first_token=_duration(summary.first_token_seconds),
        time_per_output_token=_duration(summary.per_token_seconds),
        total=_duration(summary.total_seconds),
        preemptions=summary.preemptions,
    )


def _duration(seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    duration = Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration


def _logprobs(given: Sequence[TokenLogprob], shown: TokenBytes) -> list[Any]:
    return [
        messages.TokenLogprob(
            token_id=chosen.token_id,
            token=shown(chosen.token_id),
            logprob=chosen.logprob,
            top=[
                messages.TopLogprob(
                    token_id=one.token_id, token=shown(one.token_id), logprob=one.logprob
                )
                for one in chosen.top
            ],
        )
        for chosen in given
    ]
