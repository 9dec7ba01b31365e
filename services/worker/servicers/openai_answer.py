"""Answers in OpenAI's shape: one JSON, or events with pieces of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from services.worker.llm.domain.generation import (
    FinishReason,
    Piece,
    Summary,
    TokenLogprob,
    TopLogprob,
)
from services.worker.llm.ports.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What all of an answer's JSON begins with."""

    model: str  # as the caller called it
    fingerprint: str
    include_usage: bool
    tokenizer: Tokenizer


class Writer(Protocol):
    """Writes one call's answer."""

    def begin(self, prompts: Sequence[str], n: int) -> None:
        """Texts that the answer is to repeat before its own, each for `n` of its indices; none: nothing."""
        ...

    def events(self, pieces: Sequence[Piece]) -> bytes:
        """Pieces as events."""
        ...

    def last(self, summary: Summary) -> bytes:
        """The end of the events."""
        ...

    def whole(self, pieces: Sequence[Piece], summary: Summary) -> bytes:
        """All of it as one JSON."""
        ...


class _Form:
    """What all JSON of an answer has in common, written once."""

    def __init__(self, heading: Heading, prefix: str, whole: str, chunk: str) -> None:
        said = {
            "id": f"{prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": heading.model,
            "system_fingerprint": heading.fingerprint,
        }
        self._whole = said | {"object": whole}
        self._counted = heading.include_usage
        head = orjson.dumps(said | {"object": chunk})[:-1]  # it goes on
        self._begin = b"data: " + head + b',"choices":['
        self._end = b'],"usage":null}\n\n' if self._counted else b"]}\n\n"

    def event(self, choice: Mapping[str, Any]) -> bytes:
        """An event with a piece of one index."""
        return self._begin + orjson.dumps(choice) + self._end

    def last(self, summary: Summary) -> bytes:
        """The counts, if they are wanted, and the end."""
        if not self._counted:
            return DONE
        usage = orjson.dumps(_usage(summary))
        return self._begin + b'],"usage":' + usage + b"}\n\n" + DONE

    def whole(self, choices: Sequence[Mapping[str, Any]], summary: Summary) -> bytes:
        """All of it."""
        return orjson.dumps(self._whole | {"choices": choices, "usage": _usage(summary)})


class ChatWriter:
    """The next message of a conversation."""

    def __init__(self, heading: Heading) -> None:
        self._heading = heading
        self._form = _Form(heading, "chatcmpl", "chat.completion", "chat.completion.chunk")
        self._begun: set[int] = set()

    def begin(self, prompts: Sequence[str], n: int) -> None:
        """Conversations aren't repeated."""

    def events(self, pieces: Sequence[Piece]) -> bytes:
        """Each index begins with its role."""
        return b"".join(self._form.event(choice) for p in pieces for choice in self._choices(p))

    def last(self, summary: Summary) -> bytes:
        """The counts, if they are wanted."""
        return self._form.last(summary)

    def whole(self, pieces: Sequence[Piece], summary: Summary) -> bytes:
        """All messages, by index."""
        choices = [
            {
                "index": piece.index,
                "message": {"role": "assistant", "content": piece.text, "refusal": None},
                "logprobs": self._logprobs(piece),
                "finish_reason": _finish(piece),
                **_why(piece),
            }
            for piece in sorted(pieces, key=lambda piece: piece.index)
        ]
        return self._form.whole(choices, summary)

    def _choices(self, piece: Piece) -> Iterator[Mapping[str, Any]]:
        if piece.index not in self._begun:
            self._begun.add(piece.index)
            yield _delta(piece.index, {"role": "assistant", "content": ""})
        if piece.text or piece.logprobs:
            yield _delta(piece.index, {"content": piece.text}, self._logprobs(piece))
        if piece.finish_reason is not None:
            yield {**_delta(piece.index, {}, finish=_finish(piece)), **_why(piece)}

    def _logprobs(self, piece: Piece) -> Mapping[str, Any] | None:
        if not piece.logprobs:
            return None
        return {"content": [self._logprob(one) for one in piece.logprobs], "refusal": None}

    def _logprob(self, chosen: TokenLogprob) -> Mapping[str, Any]:
        return self._token(chosen) | {"top_logprobs": [self._token(one) for one in chosen.top]}

    def _token(self, one: TokenLogprob | TopLogprob) -> dict[str, Any]:
        name = self._heading.tokenizer.token_name(one.token_id)
        return {"token": _text(name), "logprob": one.logprob, "bytes": list(name)}


class CompletionWriter:
    """What follows texts."""

    def __init__(self, heading: Heading) -> None:
        self._heading = heading
        self._form = _Form(heading, "cmpl", "text_completion", "text_completion")
        self._repeated: dict[int, str] = {}  # by index, until it is written
        self._written: dict[int, int] = {}  # characters, by index

    def begin(self, prompts: Sequence[str], n: int) -> None:
        """What is repeated comes with the first piece."""
        self._repeated = {
            number * n + k: text for number, text in enumerate(prompts) for k in range(n)
        }

    def events(self, pieces: Sequence[Piece]) -> bytes:
        """One for each piece that says anything."""
        return b"".join(
            self._form.event(self._choice(piece))
            for piece in pieces
            if piece.text or piece.logprobs or piece.finish_reason or piece.index in self._repeated
        )

    def last(self, summary: Summary) -> bytes:
        """The counts, if they are wanted."""
        return self._form.last(summary)

    def whole(self, pieces: Sequence[Piece], summary: Summary) -> bytes:
        """All texts, by index."""
        choices = [self._choice(piece) for piece in sorted(pieces, key=lambda piece: piece.index)]
        return self._form.whole(choices, summary)

    def _choice(self, piece: Piece) -> Mapping[str, Any]:
        text = self._repeated.pop(piece.index, "") + piece.text
        return {
            "index": piece.index,
            "text": text,
            "logprobs": self._logprobs(piece),
            "finish_reason": _finish(piece),
            **_why(piece),
        }

    def _logprobs(self, piece: Piece) -> Mapping[str, Any] | None:
        if not piece.logprobs:
            return None
        names = [self._name(one) for one in piece.logprobs]
        offsets, offset = [], self._written.get(piece.index, 0)
        for name in names:
            offsets.append(offset)
            offset += len(name)
        self._written[piece.index] = offset
        return {
            "tokens": names,
            "token_logprobs": [one.logprob for one in piece.logprobs],
            "top_logprobs": [
                {self._name(top): top.logprob for top in one.top} for one in piece.logprobs
            ],
            "text_offset": offsets,
        }

    def _name(self, one: TokenLogprob | TopLogprob) -> str:
        return _text(self._heading.tokenizer.token_name(one.token_id))


def _delta(
    index: int,
    delta: Mapping[str, Any],
    logprobs: Mapping[str, Any] | None = None,
    finish: str | None = None,
) -> Mapping[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


def _finish(piece: Piece) -> str | None:
    """OpenAI's word; `stop_reason` says more where theirs says less."""
    reason = piece.finish_reason
    if reason is FinishReason.BUDGET:
        return FinishReason.LENGTH.value
    return None if reason is None else reason.value


def _why(piece: Piece) -> Mapping[str, Any]:
    """A field beside OpenAI's, for clients that know it."""
    is_budget = piece.finish_reason is FinishReason.BUDGET
    return {"stop_reason": FinishReason.BUDGET.value} if is_budget else {}


def _usage(summary: Summary) -> Mapping[str, Any]:
    return {
        "prompt_tokens": summary.prompt_tokens,
        "completion_tokens": summary.completion_tokens,
        "total_tokens": summary.prompt_tokens + summary.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": summary.cached_prompt_tokens},
    }


def _text(token: bytes) -> str:
    return token.decode("utf-8", "replace")
