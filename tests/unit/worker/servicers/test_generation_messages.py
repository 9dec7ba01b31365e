"""Requests of inferplane.generation.v1: what is read, and refused before it costs anything."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from inferplane.generation.v1 import generation_pb2 as messages
from inferplane.generation.v1 import generation_service_pb2 as service

from services.rpc.errors import InvalidArgumentError
from services.worker.drivers.served_text import ServedText
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.servicers import generation_messages
from services.worker.servicers.text_prompt import ChatPrompt, TextPrompt, TokenPrompt

SERVED = cast(
    ServedText,
    SimpleNamespace(
        tokenizer=SimpleNamespace(vocabulary_size=100), context_length=64, max_output_tokens=256
    ),
)
TEXT = messages.Prompt(text="hi")


def read(prompt: messages.Prompt = TEXT, **sampling: Any) -> tuple[Any, str, SamplingSettings]:
    request = service.GenerateRequest(prompt=prompt, sampling=messages.SamplingSettings(**sampling))
    return generation_messages.read(request, SERVED)


def conversation(count: int) -> messages.Prompt:
    said = [messages.ChatMessage(role="user", content="a")] * count
    return messages.Prompt(conversation=messages.Conversation(messages=said))


def token_ids(count: int) -> messages.Prompt:
    return messages.Prompt(token_ids=messages.TokenIds(ids=[1] * count))


@pytest.mark.parametrize(
    ("prompt", "read_as", "field"),
    [
        pytest.param(TEXT, TextPrompt("hi"), "prompt.text", id="text"),
        pytest.param(token_ids(2), TokenPrompt((1, 1)), "prompt.token_ids.ids", id="tokens"),
        pytest.param(
            conversation(1),
            ChatPrompt(({"role": "user", "content": "a"},)),
            "prompt.conversation.messages",
            id="conversation",
        ),
    ],
)
def test_forms_of_a_prompt(prompt: messages.Prompt, read_as: object, field: str) -> None:
    """All three, with the name that errors call them by."""
    assert read(prompt)[:2] == (read_as, field)


def test_sampling_arrives() -> None:
    """Lists and maps, too; what isn't said has its default, of which 0 is no value for `n`."""
    sampling = read(stop=["a", "b", "a"], stop_token_ids=[7], logit_bias={5: 1.5}, temperature=0)[2]
    assert sampling.stop == ("a", "b")
    assert sampling.stop_token_ids == {7}
    assert dict(sampling.logit_bias) == {5: 1.5}
    assert (sampling.temperature, sampling.top_p, sampling.n, sampling.seed) == (0, 1, 1, None)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        pytest.param({"prompt": messages.Prompt()}, "prompt", id="no prompt"),
        pytest.param(
            {"prompt": conversation(0)}, "prompt.conversation.messages", id="nothing said"
        ),
        pytest.param({"temperature": float("nan")}, "sampling.temperature", id="no number"),
        pytest.param({"logit_bias": {100: 1.0}}, "sampling.logit_bias", id="unknown token"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], field: str) -> None:
    """By its path."""
    with pytest.raises(InvalidArgumentError) as told:
        read(**wrong)
    assert [violation.field for violation in told.value.violations] == [field]


@pytest.mark.parametrize(
    "large",
    [
        pytest.param({"prompt": token_ids(10**6)}, id="tokens"),
        pytest.param({"prompt": conversation(10**6)}, id="messages"),
        pytest.param({"stop": [""] * 10**6}, id="stop strings"),
        pytest.param({"stop_token_ids": [1] * 10**6}, id="stop tokens"),
        pytest.param({"logit_bias": dict.fromkeys(range(10**5), 1.0)}, id="biases"),
    ],
)
def test_what_has_a_million_elements_is_refused_at_once(large: dict[str, Any]) -> None:
    """None of them is copied, so that nobody else waits."""
    request = service.GenerateRequest(
        prompt=large.pop("prompt", TEXT), sampling=messages.SamplingSettings(**large)
    )
    began = time.process_time()
    with pytest.raises(InvalidArgumentError):
        generation_messages.read(request, SERVED)
    assert time.process_time() - began < 0.1
