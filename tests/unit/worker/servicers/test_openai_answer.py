"""Answers in OpenAI's shape, and errors: what the wire has, byte by byte where that matters."""

import json
from typing import Any
from urllib.parse import unquote

import pytest

from services.rpc.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InferplaneError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.worker.llm.domain.generation import (
    FinishReason,
    Piece,
    Summary,
    TokenLogprob,
    TopLogprob,
)
from services.worker.servicers import openai_errors
from services.worker.servicers.openai_answer import ChatWriter, CompletionWriter, Heading
from tests.unit.worker.llm.scripted_runner import ByteTokenizer

SUMMARY = Summary(prompt_tokens=3, completion_tokens=2, cached_prompt_tokens=1)


def heading(*, usage: bool = False) -> Heading:
    return Heading(model="m", fingerprint="fp_1", include_usage=usage, tokenizer=ByteTokenizer())


def events(data: bytes) -> list[Any]:
    """The JSON of each event; the end as it is."""
    *whole, rest = data.decode().split("\n\n")
    assert not rest
    texts = [event.removeprefix("data: ") for event in whole]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


def chosen(token: int, *others: int) -> TokenLogprob:
    return TokenLogprob(token, -0.5, tuple(TopLogprob(one, -1.0) for one in others))


def test_a_chat_piece_by_piece() -> None:
    """Role once for each index, nothing for pieces that say nothing, the end apart from the text."""
    writer = ChatWriter(heading(usage=True))
    first = events(writer.events([Piece(index=1, text='"é\n')]))
    assert [chunk["choices"][0]["delta"] for chunk in first] == [
        {"role": "assistant", "content": ""},
        {"content": '"é\n'},
    ]
    assert all(chunk["usage"] is None for chunk in first)
    assert not writer.events([Piece(index=1, token_ids=(1,))])
    last = events(
        writer.events([Piece(index=1, text="x", finish_reason=FinishReason.STOP)])
        + writer.last(SUMMARY)
    )
    assert [c["choices"][0]["finish_reason"] for c in last[:2]] == [None, "stop"]
    assert last[1]["choices"][0]["delta"] == {}
    assert (last[2]["choices"], last[3]) == ([], "[DONE]")
    assert last[2]["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    assert len({(chunk["id"], chunk["created"]) for chunk in first + last[:3]}) == 1


def test_likelihoods_of_a_chat_say_bytes() -> None:
    """A token that is half a character is told by its bytes; without text the piece is told all the same."""
    writer = ChatWriter(heading())
    piece = Piece(index=0, token_ids=(0xC3,), logprobs=(chosen(0xC3, 0xC3, 97),))
    (_, chunk) = events(writer.events([piece]))
    assert "usage" not in chunk
    (token,) = chunk["choices"][0]["logprobs"]["content"]
    assert (token["token"], token["bytes"], token["logprob"]) == ("\ufffd", [0xC3], -0.5)
    assert [top["bytes"] for top in token["top_logprobs"]] == [[0xC3], [97]]


def test_likelihoods_of_a_completion_go_on_over_pieces() -> None:
    """Offsets are those of the whole text; the prompt comes once, where it is repeated."""
    writer = CompletionWriter(heading())
    writer.begin(["ab"], 1)
    both = [
        Piece(index=0, text="cd", logprobs=(chosen(99, 100), chosen(100, 99))),
        Piece(index=0, text="e", logprobs=(chosen(101),), finish_reason=FinishReason.LENGTH),
    ]
    first, second = events(writer.events(both[:1]) + writer.events(both[1:]))
    assert (first["choices"][0]["text"], second["choices"][0]["text"]) == ("abcd", "e")
    assert first["choices"][0]["logprobs"]["text_offset"] == [0, 1]
    assert second["choices"][0]["logprobs"]["text_offset"] == [2]
    assert first["choices"][0]["logprobs"]["top_logprobs"] == [{"d": -1.0}, {"c": -1.0}]
    assert second["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        pytest.param(NotFoundError("x"), "invalid_request_error", "model_not_found", id="unknown"),
        pytest.param(FailedPreconditionError("x"), "invalid_request_error", None, id="tensors"),
        pytest.param(
            InvalidArgumentError("x", reason="CONTEXT_EXCEEDED"),
            "invalid_request_error",
            "context_length_exceeded",
            id="too long",
        ),
        pytest.param(
            ResourceExhaustedError("x"), "rate_limit_error", "rate_limit_exceeded", id="full"
        ),
        pytest.param(UnavailableError("x"), "server_error", "unavailable", id="unavailable"),
        pytest.param(DeadlineExceededError("x"), "server_error", "timeout", id="deadline"),
        pytest.param(InternalError("x"), "server_error", None, id="ours"),
    ],
)
def test_errors_have_openais_words(error: InferplaneError, kind: str, code: str | None) -> None:
    """Type and code by what went wrong."""
    said = openai_errors.body(error)["error"]
    assert said == {"message": "x", "type": kind, "param": None, "code": code}


def test_what_the_edge_makes_an_answer_of() -> None:
    """Any text survives the header, long ones are cut, the field is named, seconds are whole and not none."""
    error = ResourceExhaustedError('100 % "é€"\n' * 500, retry_after=0.1)
    (name, value), after = openai_errors.trailers(error)
    assert name == "x-inferplane-error"
    assert value.isascii()
    assert value.isprintable()
    assert len(value) < 2048
    assert json.loads(unquote(value))["error"]["message"].startswith('100 % "é€"\n')
    assert after == ("retry-after", "1")
    wrong = InvalidArgumentError.of_field("messages[0].content", "no")
    assert openai_errors.body(wrong)["error"]["param"] == "messages[0].content"
    (event,) = events(openai_errors.event(wrong))
    assert event == openai_errors.body(wrong)
