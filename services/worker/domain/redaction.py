"""Takes out of a text what points to a person, or opens a door: addresses, numbers, keys, and what settings name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

SECONDS = 1.0  # that one rule may take for one text

_LEAST_CARD, _MOST_CARD = 12, 19  # digits
_LEAST_ACCOUNT = 15  # characters
_LEAST_PHONE, _MOST_PHONE = 7, 15

Wanted = Callable[[str], bool]


class RedactionError(Exception):
    """A rule took too long: the text must not be kept."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What it finds is replaced by its name, if `wanted` says so, too."""

    name: str
    pattern: Any  # compiled; the library has no types
    wanted: Wanted | None = None


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without what was found."""

    text: str
    found: Mapping[str, int]  # by the rule's name


def redact(text: str, rules: Iterable[Rule], seconds: float = SECONDS) -> Redacted:
    """One rule after the other. Raises RedactionError; frees the GIL while it searches."""
    found: Counter[str] = Counter()
    for rule in rules:
        text = _without(text, rule, found, seconds)
    return Redacted(text, dict(found))


def own_rules(patterns: Sequence[str]) -> tuple[Rule, ...]:
    """Rules of settings. Raises ValueError that says what is wrong."""
    return tuple(_own(pattern) for pattern in patterns)


def _own(pattern: str) -> Rule:
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    if compiled.fullmatch("") is not None:
        raise ValueError(f"{pattern!r} finds empty text; allowed: what has a character at least")
    return Rule("own", compiled)


def _without(text: str, rule: Rule, found: Counter[str], seconds: float) -> str:
    def replace(match: Any) -> str:
        if rule.wanted is not None and not rule.wanted(match[0]):
            return str(match[0])
        found[rule.name] += 1
        return f"[{rule.name}]"

    try:
        return str(rule.pattern.sub(replace, text, timeout=seconds, concurrent=True))
    except TimeoutError as error:
        raise RedactionError(f"rule {rule.name} took longer than {seconds:g} s") from error


def _is_card(found: str) -> bool:
    """Some digits of it are a number that a card may have."""
    digits = "".join(str(int(character)) for character in found if character.isdecimal())
    return any(
        _is_luhn(digits[start : start + length])
        for length in range(min(_MOST_CARD, len(digits)), _LEAST_CARD - 1, -1)
        for start in range(len(digits) - length + 1)
    )


def _is_luhn(digits: str) -> bool:
    if digits[0] not in "23456":  # of the networks that pay
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _is_account(found: str) -> bool:
    """Its beginning is one (ISO 13616): letters are numbers, and the remainder is 1."""
    plain = found.replace(" ", "")
    return any(_is_iban(plain[:length]) for length in range(_LEAST_ACCOUNT, len(plain) + 1))


def _is_iban(plain: str) -> bool:
    turned = plain[4:] + plain[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


def _is_phone(found: str) -> bool:
    return _LEAST_PHONE <= sum(map(str.isdecimal, found)) <= _MOST_PHONE


_KEY = r"""
  -----BEGIN\ [A-Z ]{0,40}PRIVATE\ KEY-----(?s:.*?)(?:-----END\ [A-Z ]{0,40}PRIVATE\ KEY-----|\Z)
| \beyJ[\w-]{8,}(?:\.[\w-]*){0,4}
| \b(?:sk|pk|rk)[-_][\w-]{16,}
| \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
| \bAIza[\w-]{30,}
| \b(?:gh[pousr]_|github_pat_|glpat-|hf_|npm_|pypi-)[\w-]{16,}
| \bxox[a-z]-[\w-]{10,}
| \b(?i:bearer|basic)\s+[\w.~+/=-]{16,}
| \b(?i:password|passwd|passphrase|pwd|secret|api[ _-]?key|access[ _-]?token)
    \\?"?\s{0,4}(?::|=|\bis\b)\s{0,4}\\?["']?[^\s"',;\\]{4,}
"""
_EMAIL = r"[\w.+%'-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
_CARD = r"(?<!\d)\d(?:[\s.–-]?\d){11,30}(?!\d)"
_ACCOUNT = r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b"
_PHONE = r"""
  (?<![\w+])(?:\+|00)[1-9](?:[ ()./-]{0,2}\d){6,14}(?!\d)   # international
| (?<![\w.,-])\(?0\d{1,5}\)?[ ./-]{0,3}\d(?:[ ./-]?\d){4,10}(?!\d)   # with the digit for far calls
| (?<![\w.,-])\(?\d{3}\)?[ .-]{0,2}\d{3}[ .-]\d{4}(?![\d-])   # of North America
"""

# Keys first, which may hold what others find a part of; cards before phones, which are shorter.
RULES: Sequence[Rule] = (
    Rule("key", regex.compile(_KEY, regex.VERBOSE)),
    Rule("email", regex.compile(_EMAIL)),
    Rule("account", regex.compile(_ACCOUNT), _is_account),
    Rule("card", regex.compile(_CARD), _is_card),
    Rule("phone", regex.compile(_PHONE, regex.VERBOSE), _is_phone),
)
