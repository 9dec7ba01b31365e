"""SmolLM2's tokens, chats and texts beside llama.cpp's, as `llama_cpp.json` keeps them.

Made by `python -m benchmarks.llm.golden`; `python -m benchmarks.llm.parity` compares much more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.llm.greedy import Greedy
from services.modelfiles.gguf_header import read_header
from services.worker.llm.adapters import operators
from services.worker.llm.adapters.gguf_tokenizer import read_tokenizer, template_of
from services.worker.llm.domain.engine_settings import Target
from tests.language_model import smollm2_file

pytestmark = pytest.mark.extended

_KEPT = Path(__file__).with_name("llama_cpp.json")


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    kept: dict[str, Any] = orjson.loads(_KEPT.read_bytes())
    return kept


@pytest.fixture(scope="module")
def greedy() -> Iterator[Greedy]:
    target = Target.PORTABLE if operators.library() is None else Target.NATIVE
    fields = read_header(smollm2_file()).metadata
    ends = read_tokenizer(fields, len(fields["tokenizer.ggml.tokens"])).end_ids
    with Greedy.open(smollm2_file(), target, exact=True, banned=ends) as opened:
        yield opened


def test_tokens_are_theirs(theirs: dict[str, Any]) -> None:
    """Odd and random texts become the same tokens."""
    fields = read_header(smollm2_file()).metadata
    tokenizer = read_tokenizer(fields, len(fields["tokenizer.ggml.tokens"]))
    for text, tokens in theirs["tokens"]:
        assert tokenizer.encode(text, special=True) == tokens, text


def test_conversations_are_theirs(theirs: dict[str, Any]) -> None:
    """Every order of up to three roles is written out in the same way."""
    template = template_of(read_header(smollm2_file()).metadata)
    assert template is not None
    for messages, text in theirs["templates"]:
        assert template.render(messages) == text


def test_likeliest_texts_are_theirs(theirs: dict[str, Any], greedy: Greedy) -> None:
    """With all weights as 32-bit floats the graph goes on with the same tokens."""
    for prompt, tokens in theirs["texts"]:
        assert greedy.continued(prompt, len(tokens)) == tokens
