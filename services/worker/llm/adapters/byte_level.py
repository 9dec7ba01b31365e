"""Byte-level BPE: how bytes are written as characters, and how texts are cut before tokens are made.

The cuts are those that models were trained with, by the names that GGUF files give them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_REST}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to cut texts."""

    pattern: str = ""  # empty: GPT-2's own
    digits: bool = False  # each digit by itself, first of all
    whole_words: bool = False  # a piece that is a token is taken without merging
    begins: bool = False  # unless a file says otherwise, a text begins with a token that says so


_GPT2 = Cut()
_DIGITS = Cut(digits=True)

CUTS = {
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "olmo": _GPT2,
    "mpt": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "command-r": _DIGITS,
    "llama3": Cut(_LLAMA3, whole_words=True, begins=True),
    "llama-v3": Cut(_LLAMA3, whole_words=True, begins=True),
    "llama-bpe": Cut(_LLAMA3, whole_words=True, begins=True),
    "falcon3": Cut(_LLAMA3, whole_words=True, begins=True),
    "dbrx": Cut(_LLAMA3),
    "smaug-bpe": Cut(_LLAMA3),
    "qwen2": Cut(_QWEN2),
    "deepseek-r1-qwen": Cut(_QWEN2),
    "stablelm2": Cut(_QWEN2),
    "megrez": Cut(_QWEN2),
    "gpt-4o": Cut(_GPT4O),
}


def cutter(cut: Cut) -> pre_tokenizers.PreTokenizer:
    """The library's object for it; it also writes bytes as characters."""
    if cut.pattern:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(cut.pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if not cut.digits:
        return whole
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), whole])


def _characters() -> dict[int, int]:
    """The byte that each character stands for: printable ones for themselves, others from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    return {byte: byte for byte in plain} | {0x100 + n: byte for n, byte in enumerate(others)}


_BYTES = _characters()
_FOREIGN = dict.fromkeys(_BYTES)
_LETTERS = frozenset(map(chr, _BYTES))
_APART = "\uffff"  # no letter


def to_bytes(token: str) -> bytes:
    """What a token stands for; characters that stand for no byte are themselves."""
    if token.translate(_FOREIGN):
        return token.encode()
    return token.translate(_BYTES).encode("latin-1")


def all_to_bytes(tokens: Sequence[str]) -> list[bytes]:
    """The same of many, at once."""
    foreign = set("".join(tokens)) - _LETTERS
    words = [token if foreign.isdisjoint(token) else "" for token in tokens]
    plain = _APART.join(words).translate(_BYTES).split(_APART)
    return [
        text.encode("latin-1") if word or not token else token.encode()
        for token, word, text in zip(tokens, words, plain, strict=True)
    ]
