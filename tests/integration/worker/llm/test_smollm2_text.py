"""SmolLM2's own tokenizer and chat template, from its file."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.modelfiles.gguf_header import read_header
from services.worker.llm.adapters.gguf_tokenizer import read_tokenizer, template_of
from services.worker.llm.ports.tokenizer import ChatTemplate, Tokenizer
from tests.language_model import smollm2_file

# Of those that UTF-8 has, its vocabulary lacks these; llama.cpp leaves them out, too.
_LOST = b"\x04\x06\x13\x14\x16\x1d\xf1\xf2"
_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


@pytest.fixture(scope="module")
def fields() -> Mapping[str, Any]:
    return read_header(smollm2_file()).metadata


@pytest.fixture(scope="module")
def tokenizer(fields: Mapping[str, Any]) -> Tokenizer:
    return read_tokenizer(fields, 49152)


@pytest.fixture(scope="module")
def template(fields: Mapping[str, Any]) -> ChatTemplate:
    found = template_of(fields)
    assert found is not None
    return found


# Those of llama.cpp's server.
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        pytest.param("Hello world", [19556, 905], id="words"),
        pytest.param(
            "Hello wörld 👋 123<|im_end|>",
            [19556, 267, 29989, 400, 15107, 235, 229, 216, 33, 34, 35, 2],
            id="umlaut, emoji, digits one by one, a special token",
        ),
        pytest.param(")\x1d?", [25, 47], id="a byte without a token between two that would merge"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_texts_become_the_known_tokens(tokenizer: Tokenizer, text: str, ids: list[int]) -> None:
    """Those that the model was trained with."""
    assert tokenizer.encode(text, special=True) == ids


@settings(max_examples=200)
@given(st.text(max_size=60))
def test_tokens_bytes_are_the_text(tokenizer: Tokenizer, text: str) -> None:
    """Any text comes back byte by byte, but for bytes that the model has no token for."""
    ids = tokenizer.encode(text, special=False)
    assert all(0 <= token < tokenizer.vocabulary_size for token in ids)
    assert b"".join(map(tokenizer.token_name, ids)) == text.encode().translate(None, _LOST)


def test_each_token_is_its_own_text(tokenizer: Tokenizer) -> None:
    """The vocabulary stands for different bytes throughout; special tokens for none."""
    words = [tokenizer.token_name(token) for token in range(tokenizer.vocabulary_size)]
    assert len(set(words)) == len(words)
    assert all(words)
    assert [t for t in range(tokenizer.vocabulary_size) if not tokenizer.token_bytes(t)] == list(
        range(17)
    )
    assert tokenizer.end_ids == {0, 2}


def test_the_template_begins_with_the_default_system_message(template: ChatTemplate) -> None:
    """Where the conversation has none of its own."""
    assert template.render([{"role": "user", "content": "Hi"}]) == (
        f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_template_writes_all_roles_in_order(template: ChatTemplate) -> None:
    """The caller's system message takes the default's place."""
    said = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes?"), ("user", '1 < 2 & "x"')]
    messages = [{"role": role, "content": content} for role, content in said]
    assert template.render(messages) == (
        "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in said)
        + "<|im_start|>assistant\n"
    )
