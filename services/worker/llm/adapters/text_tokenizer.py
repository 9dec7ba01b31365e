"""A tokenizer on the `tokenizers` library, whatever file it was read from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tokenizers

from services.rpc.errors import InternalError, InvalidArgumentError
from services.worker.llm.adapters.library_errors import TokenizersError, renamed

_CHARACTER = 4  # bytes of the longest: a token may stand for any that is unknown
# Composing characters (NFC) makes at most three of nine bytes; no text that means something shrinks more otherwise.
_SHRINKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a model's tokens stand for."""

    texts: Sequence[bytes]  # by id; special ones: none
    special_names: Mapping[int, bytes]
    end_ids: frozenset[int]
    longest: int  # bytes of a text that one token stands for at most
    begin: tuple[int, ...] = ()  # that the model wants around a text
    end: tuple[int, ...] = ()
    lost: int | None = None  # what the library gives for characters without a token: left out


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
        self._check(text, limit)
        ids = self._cut_up(text)
        if self._words.lost is not None:
            ids = [token for token in ids if token != self._words.lost]
        if not special:
            return ids
        begin, end = self._words.begin, self._words.end
        has_begin = tuple(ids[: len(begin)]) == begin
        return [*(() if has_begin else begin), *ids, *end]

    def _cut_up(self, text: str) -> list[int]:
        try:
            with renamed():
                # Not `encode`: that one holds the GIL for as long as it takes.
                [found] = self._library.encode_batch_fast([text], add_special_tokens=False)
        except TokenizersError as error:
            raise InternalError(
                f"the tokenizer fails on the text: {error}", reason="TOKENIZER_FAILS"
            ) from error
        ids: list[int] = found.ids
        return ids

    def _check(self, text: str, limit: int | None) -> None:
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(
                f"the text is not Unicode: character {error.start} is half of a surrogate pair",
                reason="NOT_UNICODE",
                metadata={"place": str(error.start)},
            ) from error
        if limit is not None and size > limit * self._words.longest:
            raise InvalidArgumentError(
                f"the prompt of {size} bytes is longer than any text of {limit} tokens,"
                " which is what the context has room for",
                reason="CONTEXT_EXCEEDED",
                metadata={"bytes": str(size), "context_length": str(limit)},
            )

    def token_bytes(self, token_id: int) -> bytes:
        """What it stands for."""
        return self._words.texts[token_id]

    def token_name(self, token_id: int) -> bytes:
        """The same, but special ones say their names."""
        name = self._words.special_names.get(token_id)
        return self._words.texts[token_id] if name is None else name


def longest_of(texts: Sequence[bytes], names: Mapping[int, bytes], *, changes: bool = False) -> int:
    """Bytes of a text that one token stands for at most; more, where the text `changes` before it is cut up."""
    longest = max(map(len, (*texts, *names.values())), default=1)
    return max(longest, _CHARACTER) * (_SHRINKS if changes else 1)
