"""Requests in OpenAI's words: what is read, passed over, refused."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rpc.errors import InvalidArgumentError
from services.worker.llm.domain.sampling_checks import SamplingLimits
from services.worker.servicers import openai_fields
from services.worker.servicers.openai_request import (
    OpenAiRequest,
    Read,
    read_chat,
    read_completion,
)
from services.worker.servicers.text_prompt import ChatPrompt, TextPrompt, TokenPrompt

LIMITS = SamplingLimits(vocabulary_size=100, context_length=64, max_output_tokens=256)
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = {"prompt": "hi"}


def fields_of(read: Read, said: Mapping[str, Any]) -> list[str]:
    """The fields that are refused."""
    with pytest.raises(InvalidArgumentError) as told:
        read(said, LIMITS)
    return [violation.field for violation in told.value.violations]


def test_a_conversation() -> None:
    """Every field that counts arrives, in the newer names and the extra ones."""
    request = read_chat(
        CHAT
        | {
            "max_completion_tokens": 5,
            "max_tokens": 7,
            "temperature": 0.5,
            "top_p": 0.9,
            "n": 2,
            "stop": "x",
            "seed": 7,
            "logprobs": True,
            "top_logprobs": 3,
            "logit_bias": {"5": -100},
            "top_k": 4,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "min_tokens": 1,
            "ignore_eos": True,
            "stop_token_ids": [9],
            "stream": True,
            "stream_options": {"include_usage": True},
            "priority": -5,
            "chat_template_kwargs": {"enable_thinking": False},
        },
        LIMITS,
    )
    assert request.prompts == (
        ChatPrompt(({"role": "user", "content": "hi"},), {"enable_thinking": False}),
    )
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.n, sampling.seed) == (5, 2, 7)
    assert (sampling.temperature, sampling.top_p, sampling.stop) == (0.5, 0.9, ("x",))
    assert (sampling.logprobs, sampling.top_logprobs) == (True, 3)
    assert dict(sampling.logit_bias) == {5: -100}
    assert (sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (4, 0.1, 1.1)
    assert (sampling.min_tokens, sampling.ignore_eos) == (1, True)
    assert sampling.stop_token_ids == {9}
    assert (request.stream, request.include_usage, request.priority) == (True, True, -5)


def test_what_is_not_given_has_defaults() -> None:
    """A completion has 16 tokens, a conversation as many as there is room for; `null` is not given."""
    chat = read_chat(CHAT | dict.fromkeys(("temperature", "stop", "n", "stream", "tools")), LIMITS)
    assert (chat.sampling.max_tokens, chat.sampling.temperature) == (None, 1.0)
    assert (chat.stream, chat.include_usage, chat.priority) == (False, False, 0)
    text = read_completion(TEXT, LIMITS)
    assert (text.sampling.max_tokens, text.sampling.logprobs, text.echo) == (16, False, False)


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        pytest.param("a", (TextPrompt("a"),), id="text"),
        pytest.param(["a", "b"], (TextPrompt("a"), TextPrompt("b")), id="texts"),
        pytest.param([1, 2], (TokenPrompt((1, 2)),), id="tokens"),
        pytest.param([[1], [2, 3]], (TokenPrompt((1,)), TokenPrompt((2, 3))), id="lists of tokens"),
    ],
)
def test_forms_of_a_prompt(prompt: object, read: object) -> None:
    """All four of OpenAI's."""
    assert read_completion({"prompt": prompt, "max_tokens": 1}, LIMITS).prompts == read


@pytest.mark.parametrize(
    "prompt", [None, 5, [], [[]], ["a", 1], [True], {"a": 1}, ["a"] * 65, [1.5], [[1], "a"]]
)
def test_what_is_no_prompt(prompt: object) -> None:
    """Refused by its field."""
    assert fields_of(read_completion, {"prompt": prompt}) == ["prompt"]


@pytest.mark.parametrize(
    ("read", "said", "fields"),
    [
        pytest.param(read_chat, CHAT | {"best_of": 2}, ["best_of"], id="best_of in a chat"),
        pytest.param(read_completion, TEXT | {"best_of": 2}, ["best_of"], id="best_of beyond n"),
        pytest.param(read_completion, TEXT | {"suffix": "x"}, ["suffix"], id="suffix"),
        pytest.param(
            read_completion, TEXT | {"echo": True, "logprobs": 0}, ["echo"], id="echo's logprobs"
        ),
        pytest.param(read_chat, CHAT | {"echo": True}, ["echo"], id="echo in a chat"),
        pytest.param(read_chat, CHAT | {"tool_choice": "required"}, ["tool_choice"], id="tool"),
        pytest.param(read_chat, CHAT | {"modalities": ["audio"]}, ["modalities"], id="modalities"),
        pytest.param(
            read_chat,
            CHAT | {"response_format": {"type": "json_object"}},
            ["response_format.type"],
            id="json_object",
        ),
        pytest.param(read_chat, CHAT | {"priority": 1000}, ["priority"], id="priority"),
        pytest.param(read_chat, CHAT | {"n": 0}, ["n"], id="no answers"),
        pytest.param(read_chat, CHAT | {"n": 10**6}, ["n"], id="a million answers"),
        pytest.param(
            read_chat,
            CHAT | {"max_completion_tokens": 0},
            ["max_completion_tokens"],
            id="the name that was given",
        ),
        pytest.param(
            read_completion,
            {"prompt": ["a"] * 64, "max_tokens": 8},
            ["prompt"],
            id="too much together",
        ),
        pytest.param(
            read_chat,
            CHAT | {"stream_options": {"include_usage": 1}},
            ["stream_options.include_usage"],
            id="a number for true",
        ),
        pytest.param(
            read_chat,
            {"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]},
            ["messages[0].tool_calls"],
            id="tool calls",
        ),
    ],
)
def test_what_is_refused(read: Read, said: Mapping[str, Any], fields: list[str]) -> None:
    """By the name that the caller used."""
    assert fields_of(read, said) == fields


def test_what_changes_nothing_is_accepted() -> None:
    """Values of refused fields that mean what is done anyway."""
    chat: dict[str, Any] = {
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "audio": None,
    }
    read_chat(CHAT | chat | {"modalities": ["text"], "best_of": None}, LIMITS)
    read_completion(TEXT | {"best_of": 2, "n": 2, "suffix": "", "echo": False}, LIMITS)


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Of form and of sampling."""
    said = {"messages": [{"role": "user", "content": 5}], "temperature": -1, "tools": [{}]}
    assert fields_of(read_chat, said) == ["tools", "messages[0].content", "temperature"]


@pytest.mark.parametrize(
    ("read", "said", "told"),
    [
        pytest.param(read_chat, {"messages": [1] * 10**6}, 1, id="messages that are none"),
        pytest.param(read_chat, {"messages": CHAT["messages"] * 10**5}, 1, id="messages"),
        pytest.param(
            read_chat,
            {"messages": [{"role": "user", "content": [1] * 10**6}]},
            32,
            id="parts that are none",
        ),
        pytest.param(read_completion, {"prompt": ["a"] * 10**6}, 1, id="texts"),
        pytest.param(read_chat, CHAT | {"stop": ["a"] * 10**6}, 1, id="stop strings"),
    ],
)
def test_of_a_million_elements_few_are_looked_at(
    read: Read, said: Mapping[str, Any], told: int
) -> None:
    """What would keep everybody waiting is refused at once, and not more of it is told than anybody reads."""
    began = time.process_time()
    assert len(fields_of(read, said)) == told
    assert time.process_time() - began < 0.5


def test_tokens_are_looked_at_as_far_as_the_context_reaches() -> None:
    """How many there are is known afterwards, for the error that says so."""
    (prompt,) = read_completion({"prompt": [1] * 10**6, "max_tokens": 1}, LIMITS).prompts
    assert isinstance(prompt, TokenPrompt)
    assert len(prompt.ids) == 10**6


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
_NAMES = st.sampled_from(
    [
        *("messages", "prompt", "n", "stop", "logprobs", "logit_bias", "stream_options", "tools"),
        *("max_tokens", "stream", "response_format", "echo", "best_of", "priority", "seed"),
    ]
)


@given(st.sampled_from([read_chat, read_completion]), st.dictionaries(_NAMES, _JSON))
@settings(max_examples=300, deadline=None)
def test_any_json_is_read_or_refused(read: Read, said: Mapping[str, Any]) -> None:
    """Nothing else happens."""
    with suppress(InvalidArgumentError):
        assert isinstance(read(said, LIMITS), OpenAiRequest)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b'"a"', b"\xff", b'{"a":"\\ud800"}'])
def test_what_is_no_json_object(body: bytes) -> None:
    """Refused with the reason."""
    with pytest.raises(InvalidArgumentError, match="JSON"):
        openai_fields.parse(body)


@pytest.mark.parametrize("said", [{}, {"model": None}, {"model": 5}, {"model": ["a"]}])
def test_a_model_is_named_by_a_string(said: Mapping[str, Any]) -> None:
    """Anything else is refused by its field."""
    with pytest.raises(InvalidArgumentError) as told:
        openai_fields.model(said)
    assert told.value.violations[0].field == "model"


def test_the_last_of_equal_keys_counts() -> None:
    """As at the edge, which has chosen the worker by it."""
    assert openai_fields.model(orjson.loads(b'{"model":"a","m\\u006fdel":"b"}')) == "b"
