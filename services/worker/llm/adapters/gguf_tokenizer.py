"""A tokenizer from a GGUF file's metadata."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, models, normalizers

from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters import byte_level
from services.worker.llm.adapters.byte_level import CUTS, Cut
from services.worker.llm.adapters.chat_template import JinjaTemplate
from services.worker.llm.adapters.gguf_vocabulary import (
    GgufVocabulary,
    Kind,
    read_vocabulary,
    special_texts,
)
from services.worker.llm.adapters.text_tokenizer import TextTokenizer, Words, longest_of
from services.worker.llm.ports.tokenizer import Tokenizer

_FOUND = frozenset(map(int, (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED)))
_MERGED = frozenset(map(int, (Kind.NORMAL, Kind.USER_DEFINED, Kind.UNUSED)))
_SPACE = "▁"  # how SentencePiece writes one


def read_tokenizer(fields: Mapping[str, Any], embedding_rows: int) -> Tokenizer:
    """`fields`: values by key, as plain Python ones. Raises LoadError."""
    vocabulary = read_vocabulary(fields)
    if len(vocabulary.tokens) != embedding_rows:
        raise LoadError(
            f"tokenizer.ggml.tokens: there are {len(vocabulary.tokens)};"
            f" the embedding has {embedding_rows} rows"
        )
    if vocabulary.model == "gpt2":
        return _byte_level(vocabulary)
    return _sentence_piece(vocabulary)


def template_of(fields: Mapping[str, Any]) -> JinjaTemplate | None:
    """The file's own chat template, not checked yet. Raises LoadError."""
    source = fields.get("tokenizer.chat_template")
    if source is None:
        return None
    if not isinstance(source, str):
        raise LoadError("tokenizer.chat_template: not a text")
    return JinjaTemplate(source, special_texts(fields))


def _byte_level(vocabulary: GgufVocabulary) -> Tokenizer:
    cut = CUTS.get(vocabulary.cut)
    if cut is None:
        raise LoadError(
            f"tokenizer.ggml.pre: `{vocabulary.cut}` is not supported: {', '.join(sorted(CUTS))} are"
        )
    # A byte without a token is left out, but what is before and behind it doesn't merge: it needs a token until then.
    lost = len(vocabulary.tokens)
    name = max(vocabulary.tokens, key=len) + "?"  # no other's
    library = tokenizers.Tokenizer(
        models.BPE(
            vocab={**vocabulary.ids, name: lost},
            merges=list(vocabulary.merges),
            ignore_merges=cut.whole_words,
            unk_token=name,
            fuse_unk=False,
        )
    )
    library.pre_tokenizer = byte_level.cutter(cut)
    texts = byte_level.all_to_bytes(vocabulary.tokens)
    return _finished(library, vocabulary, texts, cut, lost)


def _sentence_piece(vocabulary: GgufVocabulary) -> Tokenizer:
    library = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary.ids,
            merges=_merges_by_score(vocabulary),
            unk_token=None if vocabulary.unknown_id is None else vocabulary.unknown,
            byte_fallback=True,
            fuse_unk=False,
        )
    )
    spaces = normalizers.Replace(" ", _SPACE)
    if vocabulary.space_prefix:
        library.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces])
    else:
        library.normalizer = spaces
    texts = [
        bytes([byte]) if (byte := vocabulary.byte_of(i)) is not None else _spaced(token)
        for i, token in enumerate(vocabulary.tokens)
    ]
    return _finished(library, vocabulary, texts, Cut(begins=True))


def _spaced(token: str) -> bytes:
    return token.replace(_SPACE, " ").encode()


def _merges_by_score(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """Any two tokens that together are one may merge, that with the highest score first."""
    ids = vocabulary.ids
    mergeable = {
        token
        for token, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True)
        if kind in _MERGED
    }
    order = sorted(mergeable, key=lambda token: (-vocabulary.scores[ids[token]], ids[token]))
    return list(
        itertools.chain.from_iterable(
            sorted(
                (
                    (token[:place], token[place:])
                    for place in range(1, len(token))
                    if token[:place] in mergeable and token[place:] in mergeable
                ),
                key=lambda pair: (ids[pair[0]], ids[pair[1]]),
            )
            for token in order
        )
    )


def _finished(
    library: tokenizers.Tokenizer,
    vocabulary: GgufVocabulary,
    texts: Sequence[bytes],
    cut: Cut,
    lost: int | None = None,
) -> Tokenizer:
    """With what is found in texts before they are cut, and what is put around them."""
    special: dict[int, bytes] = {}
    words = list(texts)
    added = []
    for i in [i for i, kind in enumerate(vocabulary.kinds) if kind in _FOUND]:
        token, kind = vocabulary.tokens[i], vocabulary.kinds[i]
        words[i] = token.encode()
        if kind != Kind.USER_DEFINED:
            special[i], words[i] = words[i], b""
        added.append(AddedToken(token, special=kind == Kind.CONTROL, normalized=False))
    library.add_tokens(added)
    return TextTokenizer(
        library,
        Words(
            texts=tuple(words),
            special_names=special,
            end_ids=vocabulary.end_ids,
            begin=_around(vocabulary.begin_id, wanted=vocabulary.begins, default=cut.begins),
            end=_around(vocabulary.end_id, wanted=vocabulary.ends, default=False),
            longest=longest_of(words, special),
            lost=lost,
        ),
    )


def _around(token_id: int | None, *, wanted: bool | None, default: bool) -> tuple[int, ...]:
    if token_id is None or not (default if wanted is None else wanted):
        return ()
    return (token_id,)
