"""A tokenizer on the `tokenizers` library, whatever file it was read from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tokenizers

from services.rpc.errors import InvalidArgumentError

# Characters that become one when composed: of U+1F82 and its like, four; and of three of them, nine bytes become three.
_COMPOSING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a model's tokens stand for."""

    texts: Sequence[bytes]  # by id; special ones: none
    special_names: Mapping[int, bytes]
    end_ids: frozenset[int]
    begin: tuple[int, ...] = ()  # that the model wants around a text
    end: tuple[int, ...] = ()
    longest: int | None = field(
        default=None
    )  # bytes that a token stands for at most; None: there is no bound


class TextTokenizer:
    """Safe to use from several threads: the library's object isn't changed any more."""

    def __init__(self, library: tokenizers.Tokenizer, words: Words) -> None:
        """Assign only."""
        self._library = library
        self._words = words

    @property
    def vocabulary_size(self) -> int:
        """Ids are below it."""
        return len(self._words.texts)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a text."""
        return self._words.end_ids

    def encode(self, text: str, *, special: bool, limit: int | None = None) -> list[int]:
        """Ids of a text; what the model wants at its beginning isn't put there twice."""
        size = _utf8_size(text)
        if limit is not None:
            self._refuse_long(size, limit)
        # Not `encode`: that one holds the GIL for as long as it takes.
        ids: list[int] = self._library.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if not special:
            return ids
        begin, end = self._words.begin, self._words.end
        has_begin = tuple(ids[: len(begin)]) == begin
        return [*(() if has_begin else begin), *ids, *end]

    def _refuse_long(self, size: int, limit: int) -> None:
        if self._words.longest is None:
            return
        least = -(-size // self._words.longest)
        if least > limit:
            raise InvalidArgumentError(
                f"the prompt of {size} bytes has at least {least} tokens; the context has {limit}",
                reason="CONTEXT_EXCEEDED",
                metadata={"bytes": str(size), "tokens": str(least), "context_length": str(limit)},
            )

    def token_bytes(self, token_id: int) -> bytes:
        """What it stands for."""
        return self._words.texts[token_id]

    def token_name(self, token_id: int) -> bytes:
        """The same, but special ones say their names."""
        name = self._words.special_names.get(token_id)
        return self._words.texts[token_id] if name is None else name


def _utf8_size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        place = error.start
        raise InvalidArgumentError(
            f"the text is not Unicode: character {place} is half of a surrogate pair",
            reason="NOT_UNICODE",
            metadata={"place": str(place)},
        ) from error


def longest_of(
    texts: Sequence[bytes], names: Mapping[int, bytes], *, composes: bool = False
) -> int:
    """Bytes of a text that one token can stand for; more, if the text is composed (NFC) before."""
    longest = max(map(len, (*texts, *names.values())), default=1)
    return max(longest, 1) * (_COMPOSING if composes else 1)
