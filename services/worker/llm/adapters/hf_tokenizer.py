"""A tokenizer as published for `transformers`: `tokenizer.json`, with what the files beside it say."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters import byte_level
from services.worker.llm.adapters.chat_template import JinjaTemplate
from services.worker.llm.adapters.library_errors import TokenizersError, renamed
from services.worker.llm.adapters.text_tokenizer import TextTokenizer, Words, longest_of
from services.worker.llm.ports.tokenizer import Tokenizer

_FILE = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_GENERATION = "generation_config.json"
_MODEL = "config.json"
_TEMPLATE = "chat_template.jinja"
_MOST_BYTES = 256 * 1024**2
_SPACE = "▁"  # how SentencePiece writes one
_PREFIX = {"type": "Prepend", "prepend": _SPACE}
_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


def read_tokenizer(folder: Path, embedding_rows: int) -> Tokenizer:
    """Raises LoadError. The embedding may have more rows than there are tokens."""
    form = _read(folder, _FILE)
    library = _library(folder, form)
    size = library.get_vocab_size(with_added_tokens=True)
    if size > embedding_rows:
        raise LoadError(
            f"{_FILE}: there are {size} tokens; the embedding has {embedding_rows} rows"
        )
    words, names = _words(library, form, size)
    begin, end = _around(library)
    return TextTokenizer(
        library,
        Words(
            texts=words,
            special_names=names,
            end_ids=_end_ids(folder, library, size),
            begin=begin,
            end=end,
            longest=longest_of(words, names, changes=_changes(form)),
        ),
    )


def template_of(folder: Path) -> JinjaTemplate | None:
    """From a file of its own, or the tokenizer's settings; not checked yet. Raises LoadError."""
    config = _read(folder, _CONFIG, optional=True)
    source: object = config.get("chat_template")
    if (folder / _TEMPLATE).is_file():
        source = _text(folder, _TEMPLATE)
    if isinstance(source, list):
        # Several by name: for tools, for retrieval, and the usual one.
        named = {
            str(entry.get("name")): entry.get("template")
            for entry in source
            if isinstance(entry, dict)
        }
        source = named.get("default")
    if source is None:
        return None
    if not isinstance(source, str):
        raise LoadError(f"{_CONFIG}: chat_template is not a text")
    tokens = {name: text for name in _NAMES if (text := _token_text(config.get(name)))}
    return JinjaTemplate(source, tokens)


def _text(folder: Path, name: str) -> str:
    try:
        if (folder / name).stat().st_size > _MOST_BYTES:
            raise LoadError(f"{name}: larger than {_MOST_BYTES} bytes")
        return (folder / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{name}: can't be read: {error}") from error


def _read(folder: Path, name: str, *, optional: bool = False) -> Mapping[str, Any]:
    if optional and not (folder / name).is_file():
        return {}
    try:
        value = json.loads(_text(folder, name))
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{name}: no JSON: {error}") from error
    if not isinstance(value, dict):
        raise LoadError(f"{name}: not an object")
    return value


def _library(folder: Path, form: Mapping[str, Any]) -> tokenizers.Tokenizer:
    model = form.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind != "BPE":
        raise LoadError(f"{_FILE}: model `{kind}` is not supported: BPE is")
    try:
        with renamed():
            library = tokenizers.Tokenizer.from_file(str(folder / _FILE))
    except TokenizersError as error:
        raise LoadError(f"{_FILE}: {error}") from error
    library.no_truncation()
    library.no_padding()
    return library


def _words(
    library: tokenizers.Tokenizer, form: Mapping[str, Any], size: int
) -> tuple[tuple[bytes, ...], dict[int, bytes]]:
    """What each token stands for, and the names of special ones."""
    is_byte_level = _is_byte_level(form)
    added = library.get_added_tokens_decoder()
    words: list[bytes] = []
    names: dict[int, bytes] = {}
    for i in range(size):
        token = library.id_to_token(i)
        if token is None:
            raise LoadError(f"{_FILE}: no token has id {i}, of {size}")
        if i not in added:
            words.append(byte_level.to_bytes(token) if is_byte_level else _piece(token))
        elif added[i].special:
            names[i] = token.encode()
            words.append(b"")
        else:
            words.append(token.encode())
    return tuple(words), names


def _is_byte_level(form: Mapping[str, Any]) -> bool:
    return "ByteLevel" in json.dumps(form.get("decoder"))


def _piece(token: str) -> bytes:
    """SentencePiece's: a byte, or text whose spaces are written otherwise."""
    if len(token) == len("<0x00>") and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:-1], 16)])
        except ValueError:
            pass
    return token.replace(_SPACE, " ").encode()


def _around(library: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is put around a text."""
    try:
        with renamed():
            plain: list[int] = library.encode("a", add_special_tokens=False).ids
            whole: list[int] = library.encode("a", add_special_tokens=True).ids
    except TokenizersError as error:
        raise LoadError(f"{_FILE}: can't cut up a text: {error}") from error
    for place in range(len(whole) - len(plain) + 1):
        if whole[place : place + len(plain)] == plain:
            return tuple(whole[:place]), tuple(whole[place + len(plain) :])
    raise LoadError(f"{_FILE}: special tokens aren't put around texts, but into them")


def _end_ids(folder: Path, library: tokenizers.Tokenizer, size: int) -> frozenset[int]:
    ends: set[int] = set()
    for name in (_GENERATION, _MODEL):
        given = _read(folder, name, optional=True).get("eos_token_id")
        ids = given if isinstance(given, list) else [given]
        for token in ids:
            if token is None:
                continue
            if not isinstance(token, int) or not 0 <= token < size:
                raise LoadError(f"{name}: eos_token_id {token!r} is no token; there are {size}")
            ends.add(token)
    text = _token_text(_read(folder, _CONFIG, optional=True).get("eos_token"))
    if text is not None:
        token = library.token_to_id(text)
        if token is None:
            raise LoadError(f"{_CONFIG}: eos_token {text!r} is no token")
        ends.add(token)
    return frozenset(ends)


def _token_text(value: object) -> str | None:
    """A token is written as a text, or as an object with one."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _changes(form: Mapping[str, Any]) -> bool:
    """Whether texts become others before they are cut up, but for how spaces are written."""
    normalizer = form.get("normalizer")
    steps = [] if normalizer is None else [normalizer]
    if isinstance(normalizer, dict):  # else something that the library alone understands
        steps = normalizer.get("normalizers", steps)
    swallows = any(
        token.get("lstrip") or token.get("rstrip") for token in form.get("added_tokens") or ()
    )
    return swallows or any(step not in (_PREFIX, _SPACES) for step in steps)
