"""Stop strings across pieces of text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.llm.domain.stop_text import StopSearch, StopTree

_TEXT = st.text("ab\n", max_size=30)
_STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4)


def _expected(text: str, stops: list[str], armed_from: int = 0) -> tuple[str, str]:
    """The rule in its plainest form: the first end of a stop string, and the longest that ends there."""
    for end in range(armed_from + 1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, ""


def _search(pieces: list[str], stops: list[str]) -> tuple[str, str]:
    search = StopSearch(StopTree(stops))
    told = ""
    for piece in pieces:
        text, stop = search.feed(piece)
        told += text
        if stop:
            return told, stop
    return told + search.flush(), ""


@given(_TEXT, _STOPS, st.lists(st.integers(0, 30), max_size=8))
def test_a_text_ends_at_the_same_place_however_it_was_cut(
    text: str, stops: list[str], places: list[int]
) -> None:
    """What is told, and which stop string ended it, are those of the whole text."""
    ends = sorted({min(place, len(text)) for place in places})
    pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    assert _search(pieces, stops) == _expected(text, stops)


@given(_TEXT, _STOPS)
def test_no_more_is_held_back_than_may_begin_a_stop_string(text: str, stops: list[str]) -> None:
    """After each character, what is missing is the longest end of the text that begins a stop string."""
    search = StopSearch(StopTree(stops))
    told = ""
    for place, character in enumerate(text):
        piece, stop = search.feed(character)
        told += piece
        if stop:
            return
        so_far = text[: place + 1]
        begun = max(
            (n for stop in stops for n in range(len(stop)) if so_far.endswith(stop[:n])), default=0
        )
        assert told == so_far[: len(so_far) - begun]


@pytest.mark.parametrize(
    ("pieces", "stops", "told", "stop"),
    [
        pytest.param(["one\n", "\ntwo"], ["\n\n"], "one", "\n\n", id="across a border"),
        pytest.param(["abcd"], ["abcd", "bc"], "a", "bc", id="that which is complete first"),
        pytest.param(
            ["xabc"], ["bc", "abc"], "x", "abc", id="the longest of those complete at once"
        ),
        pytest.param(["STO", "X"], ["STOP"], "STOX", "", id="begun, but another"),
        pytest.param(["STO"], ["STOP"], "STO", "", id="begun at the end"),
        pytest.param(["aab"], ["ab"], "a", "ab", id="begun twice"),
        pytest.param(["any"], [], "any", "", id="none"),
    ],
)
def test_stop(pieces: list[str], stops: list[str], told: str, stop: str) -> None:
    """Named cases of the rule."""
    assert _search(pieces, stops) == (told, stop)


def test_before_it_is_armed_nothing_ends_the_text() -> None:
    """A stop string within the least number of tokens is text like any other; one that is complete later counts."""
    search = StopSearch(StopTree(["ab", "bb"]))
    assert search.feed("ab", armed=False) == ("a", "")
    assert search.feed("a", armed=False) == ("b", "")
    assert search.feed("b") == ("", "ab")


def test_many_long_stop_strings_take_linear_time() -> None:
    """Sixteen stop strings that all but match cost at most a few times one that doesn't."""
    text = "a" * 200_000

    def seconds(stops: list[str]) -> float:
        search = StopSearch(StopTree(stops))
        started = time.thread_time()  # others' work on this machine is not in it
        search.feed(text)
        return time.thread_time() - started

    bad = [f"{'a' * 200}{chr(ord('b') + n)}" for n in range(16)]
    assert seconds(bad) < 30 * max(seconds(["xyz"]), 0.01)
