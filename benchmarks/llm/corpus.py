"""Texts in which tokenizers may differ: many languages, sources, and all that Unicode has."""

from __future__ import annotations

import gettext
import itertools
import pydoc_data.topics
import random
import sys
import sysconfig
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

_SEED = 20_261_130
_LONGEST = 4_000  # characters of a text
_SPACES = (
    "\t\n\v\f\r \x1c\x1d\x1e\x1f\x85\xa0\u1680"
    "\u2000\u2003\u2007\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_ODD = (
    "",
    " ",
    "  ",
    "\n",
    "\r\n\r\n",
    "a\r\nb\rc\nd",
    " \t \n x  \n\n  y   ",
    "\x00\x01\x7f",
    "I'm you're he'll WE'D it's they've n't 'S 's’s",
    "1 12 123 1234567890 3.14159 1,000,000 -42 0x1F 1e-9 ½ ² ৩৪৫ ٣٤٥ 四五 Ⅳ ①",
    "٠١٢٣٤٥٦٧٨٩ ۰۱۲۳ ०१२३ ๐๑๒๓ 𝟘𝟙𝟚 ０１２",
    "👍🏽 👩‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩🇪🇫🇷 ❤️ ☺ 🧑‍🚀",
    "e\u0301 é ﬁ ß ẞ İ ı ǅ \u0130 \u1e9e",
    "שלום עולם مرحبا بالعالم \u200f\u202e abc",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><|im_start|",
    "x<|im_end|>y <|im_end|> z<|im_start|><|im_start|>",
    "<|im_start|>system\n\n<|im_end|>\n<repo_name><reponame><file_sep><filename><gh_stars><issue_start>",
    "a" * 300,
    " " * 200 + "x",
    "\n" * 90,
    "ab " * 90,
    "!?" * 90,
    "中" * 80,
)

_REPEATED = ("a", " ", "\n", "ab ", "!?", "中", "1", "é", "<|im_end|>")


def texts(django: Path | None) -> Iterator[str]:
    """All of them; the same ones for the same Python and the same Django, whose messages are in a hundred languages."""
    yield from odd()
    yield from (one * 1_000 for one in _REPEATED)
    yield from _unicode()
    yield from random_texts()
    yield from _pieces(_english())
    yield from _pieces(_sources())
    if django is not None:
        yield from _pieces(_messages(django))


def odd() -> Iterator[str]:
    """What was written by hand: each has gone wrong in some tokenizer."""
    yield from _ODD


def _unicode() -> Iterator[str]:
    """Every assigned character: alone between letters, and with its neighbours."""
    assigned = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) not in {"Cn", "Cs", "Co"}
    ]
    plain = [c for c in assigned if not "\u4e00" <= c <= "\u9fff" and not "\uac00" <= c <= "\ud7a3"]
    for group in _groups(plain):
        yield "".join(group)
        yield " ".join(group)
        yield "".join(f"a{c}1" for c in group)
    for group in _groups(assigned, 2_000):
        yield "".join(group)
    for a, b in itertools.product(_SPACES, _SPACES):
        yield f"x{a}{b}y{a}{a}{b} {b}z"


def _groups(characters: list[str], size: int = 200) -> Iterator[list[str]]:
    for begin in range(0, len(characters), size):
        yield characters[begin : begin + size]


def random_texts() -> Iterator[str]:
    """Characters of all kinds side by side, and bytes that were never text."""
    draw = random.Random(_SEED)
    kinds = (
        "abcdeXYZ'",
        "0123456789٣४",
        _SPACES,
        '.,;:!?-_()[]{}<>|/\\"',
        "äöüßéñ中文字한국어עברית",
        "👍🏽‍♀️🇩🇪",
    )
    for _ in range(2_000):
        yield "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randint(1, 80)))
    for _ in range(300):
        yield draw.randbytes(200).decode("utf-8", "replace")
    for _ in range(300):
        codes = (draw.randrange(1, 0x11_0000) for _ in range(60))
        yield "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


def _english() -> Iterator[str]:
    topics = pydoc_data.topics.topics
    yield from (topics[name] for name in sorted(topics))


def _sources() -> Iterator[str]:
    """Python's own modules and what packages say of themselves."""
    library = Path(sysconfig.get_path("stdlib"))
    for file in sorted(library.glob("*.py"))[:60]:
        yield file.read_text(encoding="utf-8", errors="replace")
    packages = Path(sysconfig.get_path("purelib"))
    for file in sorted(packages.glob("*.dist-info/**/*")):
        if file.is_file() and ("LICEN" in file.name or file.name == "METADATA"):
            yield file.read_text(encoding="utf-8", errors="replace")[:20_000]


def _messages(django: Path) -> Iterator[str]:
    for file in sorted(django.glob("**/LC_MESSAGES/*.mo")):
        with file.open("rb") as opened:
            known = gettext.GNUTranslations(opened)
        catalog: dict[object, str] = known._catalog  # type: ignore[attr-defined]
        yield "\n".join(catalog.values())


def _pieces(long: Iterable[str]) -> Iterator[str]:
    for text in long:
        for begin in range(0, len(text), _LONGEST):
            yield text[begin : begin + _LONGEST]
