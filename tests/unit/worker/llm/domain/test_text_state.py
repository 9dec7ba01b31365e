"""A text from its first token to its end."""

import tracemalloc
from typing import Any

import pytest

from services.worker.llm.domain.generation import (
    FinishReason,
    GenerationRequest,
    Piece,
    TokenLogprob,
)
from services.worker.llm.domain.sampler import Chosen
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.domain.text_state import TextState, Vocabulary, begin_texts

_END = 0
_WORDS = [b"", b"a", b"b", b"\n", "é".encode()[:1], "é".encode()[1:], b"stop"]
_A, _B, _NEWLINE, _E1, _E2, _STOP = range(1, 7)
_VOCABULARY = Vocabulary(len(_WORDS), _WORDS.__getitem__, frozenset({_END}))


def _begin(room: int = 100, **settings: Any) -> TextState:
    sampling = SamplingSettings(**settings)
    request = GenerationRequest(prompt=(1, 2), sampling=sampling)
    return begin_texts(request, _VOCABULARY, room)[0]


def _take(text: TextState, *tokens: int) -> list[Piece]:
    return [text.take(Chosen(token)) for token in tokens]


def _told(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def test_an_end_token_ends_a_text_and_is_not_part_of_it() -> None:
    """It is counted, and computed again if need be, but not told."""
    text = _begin()
    first, last = _take(text, _A, _END)
    assert (first.text, first.token_ids, first.finish_reason) == ("a", (_A,), None)
    assert (last.text, last.token_ids, last.finish_reason) == ("", (), FinishReason.STOP)
    assert text.token_ids == [_A, _END]
    assert text.count == 2


def test_a_stop_token_does_the_same() -> None:
    """Beside the model's own."""
    pieces = _take(_begin(stop_token_ids=frozenset({_B})), _A, _B)
    assert [piece.finish_reason for piece in pieces] == [None, FinishReason.STOP]
    assert _told(pieces) == "a"


def test_ends_may_be_ignored() -> None:
    """Then the text has exactly max_tokens tokens; stop tokens that were asked for still end it."""
    pieces = _take(_begin(ignore_eos=True, max_tokens=3), _END, _A, _END)
    assert [piece.finish_reason for piece in pieces] == [None, None, FinishReason.LENGTH]
    assert [piece.token_ids for piece in pieces] == [(_END,), (_A,), (_END,)]
    stopped = _take(_begin(ignore_eos=True, stop_token_ids=frozenset({_END})), _END)
    assert stopped[0].finish_reason is FinishReason.STOP


@pytest.mark.parametrize(("max_tokens", "room"), [(2, 100), (100, 2), (None, 2)])
def test_a_text_is_no_longer_than_it_may_be(max_tokens: int | None, room: int) -> None:
    """By its settings or by the context's room, whichever is less."""
    pieces = _take(_begin(room, max_tokens=max_tokens), _A, _B)
    assert [piece.finish_reason for piece in pieces] == [None, FinishReason.LENGTH]
    assert _told(pieces) == "ab"


def test_an_end_token_in_the_last_place_is_an_end() -> None:
    """STOP, not LENGTH."""
    assert _take(_begin(max_tokens=1), _END)[0].finish_reason is FinishReason.STOP


def test_a_stop_string_across_tokens_ends_it_before() -> None:
    """What may begin one is held back until it is known; the piece says which one it was."""
    pieces = _take(_begin(stop=("a\nb",)), _B, _A, _NEWLINE, _B)
    assert [piece.text for piece in pieces] == ["b", "", "", ""]
    assert pieces[-1].finish_reason is FinishReason.STOP
    assert pieces[-1].stop_text == "a\nb"


def test_what_was_held_back_is_told_at_the_end() -> None:
    """With an end token, and with the last token."""
    assert _told(_take(_begin(stop=("a\nb",)), _A, _NEWLINE, _END)) == "a\n"
    assert _told(_take(_begin(stop=("a\nb",), max_tokens=2), _A, _NEWLINE)) == "a\n"


def test_a_character_of_two_tokens_comes_whole_or_as_broken() -> None:
    """Never half of it; if its end never comes, U+FFFD."""
    assert [piece.text for piece in _take(_begin(), _E1, _E2)] == ["", "é"]
    assert _told(_take(_begin(), _A, _E1, _END)) == "a�"
    assert _told(_take(_begin(max_tokens=1), _E1)) == "�"


def test_a_broken_character_can_complete_a_stop_string() -> None:
    """Also in the flush at the end: the text ends before it."""
    last = _take(_begin(stop=("a�",)), _A, _E1, _END)[-1]
    assert (last.text, last.finish_reason, last.stop_text) == ("", FinishReason.STOP, "a�")


def test_before_the_least_number_of_tokens_nothing_ends_it() -> None:
    """Neither stop string nor end token."""
    pieces = _take(_begin(min_tokens=3, stop=("stop",)), _STOP, _END, _STOP)
    assert [piece.finish_reason for piece in pieces] == [None, None, FinishReason.STOP]
    assert _told(pieces) == "stop"


def test_texts_of_one_request_differ_and_seeds_repeat_them() -> None:
    """Each index has random numbers of its own; the same seed has the same, none has others each time."""

    def numbers(seed: int | None) -> list[float]:
        sampling = SamplingSettings(n=3, seed=seed)
        texts = begin_texts(GenerationRequest(prompt=(1,), sampling=sampling), _VOCABULARY, 9)
        assert [text.index for text in texts] == [0, 1, 2]
        return [text.sampling.random() for text in texts]

    assert len(set(numbers(1))) == 3
    assert numbers(1) == numbers(1)
    assert not set(numbers(1)) & set(numbers(2))
    assert not set(numbers(None)) & set(numbers(None))


def test_logprobs_go_with_their_tokens() -> None:
    """A token that ends the text has none told."""
    text = _begin(logprobs=True)
    first = text.take(Chosen(_A, TokenLogprob(_A, -0.5)))
    assert first.logprobs == (TokenLogprob(_A, -0.5),)
    assert text.take(Chosen(_END, TokenLogprob(_END, -0.1))).logprobs == ()


def test_texts_that_wait_take_little_memory() -> None:
    """Whatever was asked for: long prompts to be counted, long stop strings. It is made when a text begins."""
    sampling = SamplingSettings(
        n=16, repetition_penalty=1.5, stop=tuple(f"{n:0256}" for n in range(16))
    )
    request = GenerationRequest(prompt=tuple(range(8192)), sampling=sampling)
    vocabulary = Vocabulary(8192, lambda _: b"a", frozenset({_END}))
    begin_texts(request, vocabulary, 100)  # what is imported or kept by the first
    tracemalloc.start()
    try:
        waiting = begin_texts(request, vocabulary, 100)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(waiting) == 16
    assert taken < 100_000
