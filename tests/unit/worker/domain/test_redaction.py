"""What points to a person, or opens a door, leaves a text before it is kept."""

import json

import pytest

from services.worker.domain.redaction import RULES, RedactionError, own_rules, redact

_JWT = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJwcm9qZWN0cy9hIn0.c2lnbmF0dXJlLW9mLWl0"

REDACTED = {
    "email": ("write to jane.doe+x@mail.example.org now", "write to [email] now"),
    "card in groups": ("card 4111 1111 1111 1111, thanks", "card [card], thanks"),
    "card in one": ("5500005555555559", "[card]"),
    "card with dots": ("pay 3782.822463.10005", "pay [card]"),
    "card with wide spaces": ("4111\u00a01111\u00a01111\u00a01111", "[card]"),
    "card in wide digits": ("\uff14" + "\uff11" * 15, "[card]"),
    "card with hyphens": ("pay 3782-822463-10005", "pay [card]"),
    "card among other digits": ("2024 4111111111111111", "[card]"),
    "international phone": ("call +49 (0) 30 123456-78 today", "call [phone] today"),
    "phone with 00": ("0044 20 7946 0958", "[phone]"),
    "national phone": ("at 030 / 123 45 67.", "at [phone]."),
    "phone of North America": ("(555) 123-4567 or 555-123-4567", "[phone] or [phone]"),
    "account": ("to DE89 3704 0044 0532 0130 00 please", "to [account] please"),
    "token": (f"use {_JWT} here", "use [key] here"),
    "token cut off": ("use eyJhbGciOiJFZERTQSJ9.eyJzdWIiOi", "use [key]"),
    "key of a provider": ("sk-proj-abcdefghijklmnop1234", "[key]"),
    "key of a cloud": ("AKIAIOSFODNN7EXAMPLE is it", "[key] is it"),
    "bearer header": ("Authorization: Bearer abcdef0123456789abcd", "Authorization: [key]"),
    "password": ("my password is hunter22, ok", "my [key], ok"),
    "api key in JSON": ('{"api_key": "0123456789abc"}', '{"[key]"}'),
    "private key": (
        "-----BEGIN PRIVATE KEY-----\nMC4CAQ\n-----END PRIVATE KEY-----\nend",
        "[key]\nend",
    ),
    "private key without an end": ("-----BEGIN RSA PRIVATE KEY-----\nMC4CAQ\n", "[key]"),
}
KEPT = {
    "date": "on 2026-11-30 at 16:40",
    "number that is no card": "order 4111 1111 1111 1112",
    "version and address": "release 1.40.0 at 127.0.0.1:8080",
    "year and count": "in 1989 there were 250000 of them",
    "at sign": "meet @ noon, 3 @ 5",
    "code": "for i in range(1000000): total += x[i] * 0.5",
    "talk of passwords": "I forgot my password yesterday",
    "fraction": "pi is 3.14159265358979",
}


@pytest.mark.parametrize(("text", "expected"), REDACTED.values(), ids=REDACTED.keys())
def test_what_is_found_is_replaced_by_what_it_was(text: str, expected: str) -> None:
    """Its place says of what kind it was, and nothing more."""
    assert redact(text, RULES).text == expected


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT.keys())
def test_other_text_stays(text: str) -> None:
    """Numbers and words of other kinds are left alone."""
    assert redact(text, RULES).text == text


def test_what_was_found_is_counted() -> None:
    """By the rule's name."""
    found = redact("a@b.org, c@d.org, 4111111111111111", RULES).found
    assert found == {"email": 2, "card": 1}


def test_text_with_all_of_it_has_none_of_it() -> None:
    """In one text, as JSON, too."""
    text = json.dumps([before for before, _ in REDACTED.values()], ensure_ascii=False)
    after = redact(text, RULES).text
    for secret in (
        "jane.doe",
        "4111",
        "5500",
        "3782",
        "123456",
        "3704",
        "hunter22",
        "AKIA",
        "MC4C",
    ):
        assert secret not in after


def test_own_rules_are_told_apart() -> None:
    """What settings name is taken out, too."""
    rules = (*RULES, *own_rules([r"\bACME-\d+\b"]))
    assert redact("ticket ACME-1234 of x@y.org", rules).text == "ticket [own] of [email]"


@pytest.mark.parametrize("pattern", ["(", "a*", "(?P<x", ""])
def test_wrong_own_rules_are_refused(pattern: str) -> None:
    """No expression, or one that finds nothing everywhere."""
    with pytest.raises(ValueError, match=r"regular expression|finds empty text"):
        own_rules([pattern])


def test_a_rule_that_takes_too_long_ends() -> None:
    """The text is not kept then, rather than kept as it is."""
    rules = own_rules([r"(a|aa)+(?:b|c)\1$"])
    with pytest.raises(RedactionError):
        redact("a" * 5000 + "d", rules, seconds=0.01)


def test_long_texts_are_searched_in_time() -> None:
    """Texts made to be slow for the rules of our own are not."""
    for text in (
        "a" * 65536,
        "1 " * 32768,
        "a@" * 32768,
        "+1" * 32768,
        "-----BEGIN " * 6000,
        "password " * 7000,
        "eyJ" * 20000,
        "DE89 " * 13000,
        "a." * 30000 + "@",
    ):
        redact(text, RULES, seconds=30)
