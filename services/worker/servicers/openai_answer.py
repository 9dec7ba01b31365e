"""Answers in OpenAI's shape: one JSON, or events with pieces of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from services.worker.llm.domain.generation import Piece, Summary, TokenLogprob, TopLogprob
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


class ChatWriter:
    """The next message of a conversation."""

    def __init__(self, heading: Heading) -> None:
        self._heading = heading
        self._ident = _ident("chatcmpl")
        self._begun: set[int] = set()

    def begin(self, prompts: Sequence[str], n: int) -> None:
        """Conversations aren't repeated."""

    def events(self, pieces: Sequence[Piece]) -> bytes:
        """Each index begins with its role."""
        return b"".join(_event(self._chunk(choice)) for p in pieces for choice in self._choices(p))

    def last(self, summary: Summary) -> bytes:
        """The counts, if they are wanted."""
        return _last(self._chunk(None), self._heading, summary)

    def whole(self, pieces: Sequence[Piece], summary: Summary) -> bytes:
        """All messages, by index."""
        choices = [
            {
                "index": piece.index,
                "message": {"role": "assistant", "content": piece.text, "refusal": None},
                "logprobs": self._logprobs(piece),
                "finish_reason": _finish(piece),
            }
            for piece in sorted(pieces, key=lambda piece: piece.index)
        ]
        said = _head(self._ident, "chat.completion", self._heading)
        return orjson.dumps(said | {"choices": choices, "usage": _usage(summary)})

    def _choices(self, piece: Piece) -> Iterator[Mapping[str, Any]]:
        if piece.index not in self._begun:
            self._begun.add(piece.index)
            yield _delta(piece.index, {"role": "assistant", "content": ""})
        if piece.text or piece.logprobs:
            yield _delta(piece.index, {"content": piece.text}, self._logprobs(piece))
        if piece.finish_reason is not None:
            yield _delta(piece.index, {}, finish=_finish(piece))

    def _chunk(self, choice: Mapping[str, Any] | None) -> dict[str, Any]:
        said = _head(self._ident, "chat.completion.chunk", self._heading)
        said["choices"] = [] if choice is None else [choice]
        if self._heading.include_usage:
            said["usage"] = None
        return said

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
        self._ident = _ident("cmpl")
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
            _event(self._said([self._choice(piece)], whole=False))
            for piece in pieces
            if piece.text or piece.logprobs or piece.finish_reason or piece.index in self._repeated
        )

    def last(self, summary: Summary) -> bytes:
        """The counts, if they are wanted."""
        return _last(self._said([], whole=False), self._heading, summary)

    def whole(self, pieces: Sequence[Piece], summary: Summary) -> bytes:
        """All texts, by index."""
        choices = [self._choice(piece) for piece in sorted(pieces, key=lambda piece: piece.index)]
        return orjson.dumps(self._said(choices, whole=True) | {"usage": _usage(summary)})

    def _said(self, choices: Sequence[Mapping[str, Any]], *, whole: bool) -> dict[str, Any]:
        said = _head(self._ident, "text_completion", self._heading) | {"choices": choices}
        return said | ({"usage": None} if self._heading.include_usage and not whole else {})

    def _choice(self, piece: Piece) -> Mapping[str, Any]:
        text = self._repeated.pop(piece.index, "") + piece.text
        return {
            "index": piece.index,
            "text": text,
            "logprobs": self._logprobs(piece),
            "finish_reason": _finish(piece),
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


def _ident(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(12)}"


def _head(ident: str, kind: str, heading: Heading) -> dict[str, Any]:
    return {
        "id": ident,
        "object": kind,
        "created": int(time.time()),
        "model": heading.model,
        "system_fingerprint": heading.fingerprint,
    }


def _delta(
    index: int,
    delta: Mapping[str, Any],
    logprobs: Mapping[str, Any] | None = None,
    finish: str | None = None,
) -> Mapping[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


def _finish(piece: Piece) -> str | None:
    return None if piece.finish_reason is None else piece.finish_reason.value


def _usage(summary: Summary) -> Mapping[str, Any]:
    return {
        "prompt_tokens": summary.prompt_tokens,
        "completion_tokens": summary.completion_tokens,
        "total_tokens": summary.prompt_tokens + summary.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": summary.cached_prompt_tokens},
    }


def _last(chunk: dict[str, Any], heading: Heading, summary: Summary) -> bytes:
    counted = _event(chunk | {"usage": _usage(summary)}) if heading.include_usage else b""
    return counted + DONE


def _event(said: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(said) + b"\n\n"


def _text(token: bytes) -> str:
    return token.decode("utf-8", "replace")
