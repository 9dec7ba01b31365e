"""Messages of inferplane.generation.v1 to and from the engine's words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from inferplane.generation.v1 import generation_pb2 as messages
from inferplane.generation.v1 import generation_service_pb2 as service

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.worker.drivers.served_text import ServedText
from services.worker.llm.domain.generation import FinishReason, Piece, Summary, TokenLogprob
from services.worker.llm.domain.sampling_checks import read_sampling
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
}


def read(request: Request, served: ServedText) -> tuple[Prompt, str, SamplingSettings]:
    """Prompt, the name of its field, and checked settings. Raises InvalidArgumentError naming all that is wrong."""
    violations: list[FieldViolation] = []
    prompt, field = _prompt(request.prompt, violations)
    if not -_MOST_PRIORITY <= request.priority <= _MOST_PRIORITY:
        allowed = f"{-_MOST_PRIORITY} to {_MOST_PRIORITY}"
        violations.append(FieldViolation("priority", f"{request.priority}; allowed: {allowed}"))
    sampling = SamplingSettings()
    try:
        sampling = read_sampling(_values(request.sampling), limits_of(served))
    except InvalidArgumentError as error:
        violations += error.violations
    if violations:
        raise InvalidArgumentError.of_fields(violations)
    return prompt, field, sampling


def _prompt(given: messages.Prompt, violations: list[FieldViolation]) -> tuple[Prompt, str]:
    match given.WhichOneof("prompt"):
        case "text":
            return TextPrompt(given.text), "prompt.text"
        case "token_ids":
            return TokenPrompt(tuple(given.token_ids.ids)), "prompt.token_ids.ids"
        case "conversation":
            said = given.conversation.messages
            if not said:
                text = "empty; allowed: at least one message"
                violations.append(FieldViolation("prompt.conversation.messages", text))
            listed = tuple({"role": m.role, "content": m.content} for m in said)
            return ChatPrompt(listed), "prompt.conversation.messages"
    text = "missing; allowed: text, token_ids or conversation"
    violations.append(FieldViolation("prompt", text))
    return TextPrompt(""), "prompt"


def _values(given: messages.SamplingSettings) -> Mapping[str, object]:
    values: dict[str, object] = {name: getattr(given, name) for name in _PLAIN}
    values |= {name: getattr(given, name) for name in _OPTIONAL if given.HasField(name)}
    values |= {
        "logit_bias": dict(given.logit_bias),
        "stop": list(given.stop),
        "stop_token_ids": list(given.stop_token_ids),
    }
    return values | ({"n": given.n} if given.n else {})


def pieces(given: Sequence[Piece], shown: TokenBytes) -> list[messages.Piece]:
    """Pieces as messages."""
    return [
        messages.Piece(
            index=piece.index,
            text=piece.text,
            token_ids=piece.token_ids,
            logprobs=_logprobs(piece.logprobs, shown),
            finish_reason=_FINISH[piece.finish_reason],
            stop_text=piece.stop_text,
        )
        for piece in given
    ]


def choices(given: Sequence[Piece], shown: TokenBytes) -> list[messages.Choice]:
    """Whole texts as messages, by index."""
    return [
        messages.Choice(
            index=piece.index,
            text=piece.text,
            token_ids=piece.token_ids,
            logprobs=_logprobs(piece.logprobs, shown),
            finish_reason=_FINISH[piece.finish_reason],
            stop_text=piece.stop_text,
        )
        for piece in sorted(given, key=lambda piece: piece.index)
    ]


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
