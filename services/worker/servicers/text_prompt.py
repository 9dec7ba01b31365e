"""What a language model is to continue, in whatever form the caller has it, and its tokens."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.worker.drivers.served_text import ServedText
from services.worker.llm.domain.generation import GenerationRequest, TokenId
from services.worker.llm.domain.sampling_checks import SamplingLimits, fit
from services.worker.llm.domain.sampling_settings import SamplingSettings

_LONG_TEXT = 4 * 1024  # characters, or tokens; cutting up a longer one would hold the event loop
_MOST_NAMED = 16  # wrong tokens that are told


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Tokens of the model."""

    ids: tuple[TokenId, ...]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, for the model's template."""

    messages: tuple[Mapping[str, Any], ...]
    options: Mapping[str, Any] | None = None  # other names that the template may use


Prompt: TypeAlias = TextPrompt | TokenPrompt | ChatPrompt
_Tokens: TypeAlias = tuple[tuple[TokenId, ...], int]  # and the text's characters


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTerms:
    """What counts for all requests of a call."""

    tenant: str
    arrived: float  # of the monotonic clock
    deadline: float | None  # of the same
    priority: int = 0


def limits_of(served: ServedText) -> SamplingLimits:
    """What sampling settings are checked against."""
    return SamplingLimits(
        vocabulary_size=served.tokenizer.vocabulary_size,
        context_length=served.context_length,
        max_output_tokens=served.max_output_tokens,
    )


async def request_of(
    served: ServedText, prompt: Prompt, field: str, sampling: SamplingSettings, terms: CallTerms
) -> GenerationRequest:
    """A checked request. Raises InvalidArgumentError; `field` is what the prompt is called."""
    if isinstance(prompt, TokenPrompt):
        fit(sampling, len(prompt.ids), limits_of(served))  # before all of them are looked at
    tokens, characters = await _tokens(served, prompt, field)
    if not tokens:
        raise InvalidArgumentError.of_field(field, "empty; allowed: at least one token")
    return GenerationRequest(
        prompt=tokens,
        characters=characters,
        sampling=fit(sampling, len(tokens), limits_of(served)),
        tenant=terms.tenant,
        priority=terms.priority,
        arrived=terms.arrived,
        deadline=terms.deadline,
    )


async def _tokens(served: ServedText, prompt: Prompt, field: str) -> _Tokens:
    match prompt:
        case TokenPrompt(ids):
            _check_ids(ids, served.tokenizer.vocabulary_size, field)
            if len(ids) <= _LONG_TEXT:
                return ids, _characters(served, ids)
            return ids, await asyncio.to_thread(_characters, served, ids)
        case TextPrompt(text) if len(text) <= _LONG_TEXT:
            return _encoded(served, text, special=True)
        case TextPrompt(text):
            return await asyncio.to_thread(_encoded, served, text, special=True)
        case ChatPrompt():
            return await asyncio.to_thread(_conversation, served, prompt, field)


def _check_ids(ids: tuple[TokenId, ...], vocabulary_size: int, field: str) -> None:
    wrong = [i for i, token in enumerate(ids) if not 0 <= token < vocabulary_size]
    if wrong:
        raise InvalidArgumentError.of_fields(
            [
                FieldViolation(f"{field}[{i}]", f"{ids[i]}; allowed: 0 to {vocabulary_size - 1}")
                for i in wrong[:_MOST_NAMED]
            ]
        )


def _conversation(served: ServedText, prompt: ChatPrompt, field: str) -> _Tokens:
    """Blocks as long as the template takes, which also writes what the model wants at the beginning."""
    if served.template is None:
        raise InvalidArgumentError.of_field(
            field, "a conversation, but the model has no chat template; allowed: text or tokens"
        )
    return _encoded(served, served.template.render(prompt.messages, prompt.options), special=False)


def _encoded(served: ServedText, text: str, *, special: bool) -> _Tokens:
    ids = served.tokenizer.encode(text, special=special, limit=served.context_length)
    return tuple(ids), len(text)


def _characters(served: ServedText, ids: tuple[TokenId, ...]) -> int:
    text = b"".join(map(served.tokenizer.token_bytes, ids))
    return len(text.decode("utf-8", "replace"))
