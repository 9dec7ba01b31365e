"""The tokens of a GGUF file, checked: what their kinds are, which are special, how they merge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from services.worker.domain.load_state import LoadError

MODELS = ("gpt2", "llama")

_KEYS = "tokenizer.ggml."
_BYTES = 256
_TEMPLATE_NAMES = ("bos_token", "eos_token")

# Tokens that end a text in the families that have them, whether or not the file says so.
_ENDS = frozenset(
    {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<eos>",
        "<EOT>",
        "<｜end▁of▁sentence｜>",
    }
)


class Kind(IntEnum):
    """Of a token, as GGUF numbers them."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# As plain numbers, which are compared faster: there are as many as tokens.
_KINDS = frozenset(map(int, Kind))
_BYTE = int(Kind.BYTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufVocabulary:
    """All that is said of tokens."""

    model: str  # `gpt2`: byte-level BPE; `llama`: SentencePiece's BPE
    cut: str  # how texts are cut before tokens are made; of `gpt2` only
    tokens: Sequence[str]  # by id, each different
    ids: dict[str, int]
    kinds: Sequence[int]
    scores: Sequence[float]  # of `llama` only
    merges: Sequence[tuple[str, str]]  # of `gpt2` only
    begin_id: int | None
    end_id: int | None
    unknown_id: int | None
    end_ids: frozenset[int]
    begins: bool | None  # None: the file doesn't say
    ends: bool | None
    space_prefix: bool

    @property
    def unknown(self) -> str:
        """The token for what has none."""
        assert self.unknown_id is not None, "asked for only where there is one"
        return self.tokens[self.unknown_id]

    def byte_of(self, token_id: int) -> int | None:
        """The byte that a token stands for, if it is one of those."""
        if self.kinds[token_id] != _BYTE:
            return None
        return int(self.tokens[token_id][1:-1], 16)


def read_vocabulary(fields: Mapping[str, Any]) -> GgufVocabulary:
    """Raises LoadError with the key, and what is wrong."""
    reader = _Reader(fields)
    model = reader.text("model")
    if model not in MODELS:
        raise LoadError(f"{_KEYS}model: `{model}` is not supported: {' and '.join(MODELS)} are")
    tokens = reader.tokens()
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        twice = next(token for i, token in enumerate(tokens) if ids[token] != i)
        raise LoadError(f"{_KEYS}tokens: {twice!r} is there twice")
    unknown_id = reader.token_id("unknown_token_id", len(tokens))
    kinds = reader.kinds(tokens, ids)
    if model == "llama" and unknown_id is None and kinds.count(_BYTE) < _BYTES:
        raise LoadError(f"{_KEYS}unknown_token_id: missing, and so are tokens for bytes")
    return GgufVocabulary(
        model=model,
        cut=reader.text("pre", "") if model == "gpt2" else "",
        tokens=tokens,
        ids=ids,
        kinds=kinds,
        scores=reader.scores(len(tokens)) if model == "llama" else (),
        merges=reader.merges(ids) if model == "gpt2" else (),
        begin_id=reader.token_id("bos_token_id", len(tokens)),
        end_id=reader.token_id("eos_token_id", len(tokens)),
        unknown_id=unknown_id,
        end_ids=reader.end_ids(ids),
        begins=reader.flag("add_bos_token"),
        ends=reader.flag("add_eos_token"),
        space_prefix=reader.flag("add_space_prefix") is not False,
    )


def special_texts(fields: Mapping[str, Any]) -> dict[str, str]:
    """Texts of the tokens that chat templates know by name. Raises LoadError."""
    reader = _Reader(fields)
    tokens = fields.get(_KEYS + "tokens", ())
    ids = {name: reader.token_id(f"{name}_id", len(tokens)) for name in _TEMPLATE_NAMES}
    return {name: str(tokens[i]) for name, i in ids.items() if i is not None}


class _Reader:
    """Of values whose types are not sure."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def text(self, key: str, default: str | None = None) -> str:
        value = self._fields.get(_KEYS + key, default)
        if not isinstance(value, str):
            raise LoadError(f"{_KEYS}{key}: a text is missing")
        return value

    def flag(self, key: str) -> bool | None:
        value = self._fields.get(_KEYS + key)
        if value is not None and not isinstance(value, bool):
            raise LoadError(f"{_KEYS}{key}: not true or false")
        return value

    def token_id(self, key: str, count: int) -> int | None:
        value = self._fields.get(_KEYS + key)
        if value is None:
            return None
        if not _is_integer(value) or not 0 <= value < count:
            raise LoadError(f"{_KEYS}{key}: {value!r} is no token; there are {count}")
        return int(value)

    def _list(self, key: str, count: int | None = None) -> Sequence[Any]:
        value = self._fields.get(_KEYS + key)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if not isinstance(value, list | tuple) or not value:
            raise LoadError(f"{_KEYS}{key}: a list is missing")
        if count is not None and len(value) != count:
            raise LoadError(f"{_KEYS}{key}: there are {len(value)}, of {count} tokens")
        return value

    def tokens(self) -> Sequence[str]:
        tokens = self._list("tokens")
        if not _all_are(tokens, str) or not _is_unicode("".join(tokens)):
            i = next(i for i, token in enumerate(tokens) if not _is_unicode(token))
            raise LoadError(f"{_KEYS}tokens: that with id {i} is not UTF-8: {tokens[i]!a}")
        if "" not in tokens:
            return tokens
        # Some files leave places empty; no text becomes these.
        return [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens)]

    def kinds(self, tokens: Sequence[str], ids: Mapping[str, int]) -> Sequence[int]:
        if _KEYS + "token_type" not in self._fields:
            kinds: list[Any] = [int(Kind.NORMAL)] * len(tokens)
        else:
            kinds = list(self._list("token_type", len(tokens)))
        if not _all_are(kinds, int) or not _KINDS.issuperset(kinds):
            i = next(
                i for i, kind in enumerate(kinds) if not _is_integer(kind) or kind not in _KINDS
            )
            raise LoadError(f"{_KEYS}token_type: {kinds[i]!r} of {tokens[i]!r} is not known")
        for token, kind in zip(tokens, kinds, strict=True):
            if kind == _BYTE and not _is_byte(token):
                raise LoadError(f"{_KEYS}token_type: {token!r} is no byte")
        for token in _ENDS & ids.keys():
            kinds[ids[token]] = int(Kind.CONTROL)
        return kinds

    def scores(self, count: int) -> Sequence[float]:
        scores = self._list("scores", count)
        for i, score in enumerate(scores):
            if not isinstance(score, float | int) or score != score:
                raise LoadError(f"{_KEYS}scores: {score!r} of id {i} is no number")
        return scores

    def merges(self, ids: Mapping[str, int]) -> Sequence[tuple[str, str]]:
        rules = self._list("merges")
        if not _all_are(rules, str):
            rule = next(rule for rule in rules if not isinstance(rule, str))
            raise LoadError(f"{_KEYS}merges: {rule!r} is no text")
        merges = []
        for rule in rules:
            left, _, right = rule.partition(" ")
            if left not in ids or right not in ids or left + right not in ids:
                raise LoadError(f"{_KEYS}merges: {rule!r} is not about tokens")
            merges.append((left, right))
        return merges

    def end_ids(self, ids: Mapping[str, int]) -> frozenset[int]:
        said = (self.token_id(f"{name}_token_id", len(ids)) for name in ("eos", "eot", "eom"))
        known = {ids[token] for token in _ENDS if token in ids}
        return frozenset(known | {token for token in said if token is not None})


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _all_are(values: Sequence[Any], kind: type) -> bool:
    return set(map(type, values)) == {kind}


def _is_unicode(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_byte(token: str) -> bool:
    try:
        return token == f"<0x{int(token[3:-1], 16):02X}>" and len(token) == len("<0x00>")
    except ValueError:
        return False
