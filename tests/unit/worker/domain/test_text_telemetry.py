"""Fingerprints: equal where that says something, different wherever it would say too much."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.text_telemetry import FINGERPRINT_BYTES, fingerprint

NOVEMBER = datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
SECRET = b"s" * 32
PROMPT = [[1, 2, 3]]


def test_equal_prompts_of_a_project_have_equal_ones() -> None:
    """On whatever worker, in one month."""
    first = fingerprint(SECRET, "a", NOVEMBER, PROMPT)
    again = fingerprint(SECRET, "a", NOVEMBER.replace(day=1), [(1, 2, 3)])
    assert first == again
    assert len(first) == FINGERPRINT_BYTES


def test_what_differs_in_anything_has_another() -> None:
    """In project, month, secret, tokens, and in how prompts are cut."""
    december = datetime(2026, 12, 1, tzinfo=UTC)
    found = {
        fingerprint(SECRET, "a", NOVEMBER, PROMPT),
        fingerprint(SECRET, "b", NOVEMBER, PROMPT),
        fingerprint(SECRET, "", NOVEMBER, PROMPT),
        fingerprint(b"t" * 32, "a", NOVEMBER, PROMPT),
        fingerprint(SECRET, "a", december, PROMPT),
        fingerprint(SECRET, "a", NOVEMBER, [[1, 2], [3]]),
        fingerprint(SECRET, "a", NOVEMBER, [[1, 2, 3], []]),
        fingerprint(SECRET, "a", NOVEMBER, []),
        fingerprint(SECRET, "a", NOVEMBER, [[3, 2, 1]]),
    }
    assert len(found) == 9


@given(
    st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=8), max_size=4),
    st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=8), max_size=4),
)
def test_only_equal_tokens_are_equal(one: list[list[int]], other: list[list[int]]) -> None:
    """Whatever the tokens are."""
    same = fingerprint(SECRET, "p", NOVEMBER, one) == fingerprint(SECRET, "p", NOVEMBER, other)
    assert same == (one == other)
