"""Tokenizers from what GGUF files say."""

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters import byte_level
from services.worker.llm.adapters.byte_level import CUTS
from services.worker.llm.adapters.gguf_tokenizer import read_tokenizer, template_of
from services.worker.llm.ports.tokenizer import Tokenizer
from tests.unit.worker.llm.vocabularies import byte_level_fields, sentence_piece_fields


def _read(fields: dict[str, Any]) -> Tokenizer:
    return read_tokenizer(fields, len(fields["tokenizer.ggml.tokens"]))


_BYTES = _read(byte_level_fields())
_PIECES = _read(sentence_piece_fields())


def _names(tokenizer: Tokenizer, text: str, *, special: bool = False) -> list[bytes]:
    return [tokenizer.token_name(token) for token in tokenizer.encode(text, special=special)]


@pytest.mark.parametrize("tokenizer", [_BYTES, _PIECES], ids=["byte level", "sentence piece"])
@given(text=st.text(max_size=40) | st.text("helo w\n12é▁", max_size=40))
def test_bytes_of_all_tokens_are_the_text(tokenizer: Tokenizer, text: str) -> None:
    """Whatever it is; SentencePiece's kind puts a space before it, and takes its own sign for one."""
    whole = b"".join(map(tokenizer.token_name, tokenizer.encode(text, special=False)))
    prefixed = text and tokenizer is _PIECES
    expected = f" {text}".replace("▁", " ") if prefixed else text
    assert whole == expected.encode()


def test_merges_are_made_in_their_order() -> None:
    """The longest known pieces come about step by step; digits stay by themselves in `smollm`."""
    assert _names(_BYTES, "hello  w") == [b"hello", b" ", b" w"]
    assert _names(_BYTES, "12") == [b"1", b"2"]
    assert _names(_read(byte_level_fields(pre="gpt-2")), "12") == [b"12"]


def test_bytes_without_a_token_are_left_out_where_they_were() -> None:
    """What is before and behind them doesn't merge across them."""
    fields = byte_level_fields()
    tokens = fields["tokenizer.ggml.tokens"]
    tokens[tokens.index("ē")] = "<gone>"  # how GPT-2 writes byte 0x13
    assert _names(_read(fields), "h\x13e\x13\x13he") == [b"h", b"e", b"he"]


def test_pieces_merge_by_score() -> None:
    """The highest first: `▁he` before `llo` before `he`."""
    assert _names(_PIECES, "hello") == [b" he", b"llo"]
    assert _names(_PIECES, "é€") == [b" ", "é".encode(), b"\xe2", b"\x82", b"\xac"]


def test_names_of_special_tokens_are_those_tokens() -> None:
    """Special ones stand for no bytes, those that a user defined for their own."""
    ids = _BYTES.encode("he<|im_end|><tool>", special=False)
    assert [_BYTES.token_bytes(token) for token in ids] == [b"he", b"", b"<tool>"]
    assert _names(_PIECES, "<s>he<b>he") == [b"<s>", b" he", b"<b>", b" he"]


@pytest.mark.parametrize(
    ("fields", "text", "names"),
    [
        pytest.param(byte_level_fields(), "he", [b"he"], id="byte level: nothing"),
        pytest.param(
            byte_level_fields(pre="llama-bpe"),
            "he",
            [b"<|im_start|>", b"he"],
            id="llama-bpe: begins",
        ),
        pytest.param(
            byte_level_fields(add_bos_token=True, add_eos_token=True),
            "he",
            [b"<|im_start|>", b"he", b"<|im_end|>"],
            id="as the file says",
        ),
        pytest.param(sentence_piece_fields(), "he", [b"<s>", b" he"], id="pieces: begins"),
        pytest.param(
            sentence_piece_fields(add_bos_token=False),
            "he",
            [b" he"],
            id="pieces: the file says no",
        ),
        pytest.param(sentence_piece_fields(), "<s>he", [b"<s>", b" he"], id="not twice"),
        pytest.param(
            sentence_piece_fields(add_space_prefix=False), "he", [b"<s>", b"he"], id="no space"
        ),
    ],
)
def test_what_a_model_wants_around_a_text(
    fields: dict[str, Any], text: str, names: list[bytes]
) -> None:
    """With `special`, once."""
    assert _names(_read(fields), text, special=True) == names


def test_tokens_that_end_a_text() -> None:
    """The file's own and those whose name says so."""
    assert _BYTES.end_ids == {0, 2}
    assert _PIECES.end_ids == {2}
    assert _read(sentence_piece_fields(eos_token_id=None, eot_token_id=9)).end_ids == {9}


def test_numbers_may_come_as_arrays() -> None:
    """As readers of large files give them."""
    fields = sentence_piece_fields()
    for key in ("scores", "token_type"):
        fields[f"tokenizer.ggml.{key}"] = np.array(fields[f"tokenizer.ggml.{key}"])
    assert _names(_read(fields), "hello") == [b" he", b"llo"]


_TOKENS = byte_level_fields()["tokenizer.ggml.tokens"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param(byte_level_fields(model="t5"), "`t5` is not supported", id="another kind"),
        pytest.param(byte_level_fields(model=None), "model: a text is missing", id="no kind"),
        pytest.param(byte_level_fields(pre="poro"), "`poro` is not supported", id="another cut"),
        pytest.param(byte_level_fields(tokens=[]), "tokens: a list is missing", id="no tokens"),
        pytest.param(byte_level_fields(tokens=[1]), "id 0 is not UTF-8", id="token no text"),
        pytest.param(
            byte_level_fields(tokens=[*_TOKENS[:-1], "he"]), "'he' is there twice", id="twice"
        ),
        pytest.param(
            byte_level_fields(tokens=[*_TOKENS[:-1], "\udcff"]), "is not UTF-8", id="invalid UTF-8"
        ),
        pytest.param(byte_level_fields(token_type=[1, 1]), "token_type: there are 2", id="kinds"),
        pytest.param(
            byte_level_fields(token_type=[9] * len(_TOKENS)), "9 of '<|endoftext|>'", id="kind 9"
        ),
        pytest.param(byte_level_fields(merges=["h nothing"]), "'h nothing'", id="merge unknown"),
        pytest.param(byte_level_fields(merges=["h o"]), "'h o' is not about", id="merge's result"),
        pytest.param(byte_level_fields(merges=["he"]), "'he' is not about", id="merge of one"),
        pytest.param(byte_level_fields(merges=[7]), "7 is no text", id="merge a number"),
        pytest.param(byte_level_fields(eos_token_id=10**6), "eos_token_id: 1000000", id="end"),
        pytest.param(byte_level_fields(bos_token_id=True), "bos_token_id: True", id="begin true"),
        pytest.param(byte_level_fields(add_bos_token=1), "add_bos_token: not true", id="flag 1"),
        pytest.param(sentence_piece_fields(scores=[0.0]), "scores: there are 1", id="scores"),
        pytest.param(
            sentence_piece_fields(scores=[float("nan")] * 273), "nan of id 0", id="score NaN"
        ),
        pytest.param(
            sentence_piece_fields(token_type=[6] * 273),
            "'<unk>' is no byte",
            id="byte that is none",
        ),
        pytest.param(
            sentence_piece_fields(token_type=[1] * 273, unknown_token_id=None),
            "unknown_token_id: missing",
            id="neither bytes nor unknown",
        ),
    ],
)
def test_a_vocabulary_that_lies_is_refused(fields: dict[str, Any], told: str) -> None:
    """With the key and what is wrong."""
    with pytest.raises(LoadError, match=r"^tokenizer\.ggml") as caught:
        _read(fields)
    assert told in str(caught.value)


def test_a_vocabulary_unlike_the_embedding_is_refused() -> None:
    """With both sizes."""
    with pytest.raises(LoadError, match=r"there are 268; the embedding has 300 rows"):
        read_tokenizer(byte_level_fields(), 300)


@pytest.mark.parametrize("name", sorted(CUTS))
def test_every_cut_takes_every_text(name: str) -> None:
    """No text is lost on the way, whatever the pattern."""
    tokenizer = _read(byte_level_fields(pre=name))
    text = "It's 1234 WORLDS,\r\n\r\n  héllo\tΩмир 世界 ٣٤ 👋🏽  \n"
    ids = tokenizer.encode(text, special=False)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_half_a_surrogate_pair_is_refused() -> None:
    """As what it is, with its place."""
    with pytest.raises(InvalidArgumentError, match="character 2 is half") as caught:
        _BYTES.encode("ab\ud800", special=True)
    assert caught.value.reason == "NOT_UNICODE"


def test_a_text_longer_than_any_of_so_many_tokens_is_refused_at_once() -> None:
    """20 MB for a context of 8192 tokens; one that may fit is cut up."""
    with pytest.raises(InvalidArgumentError, match="20000000 bytes") as caught:
        _BYTES.encode("x" * 20_000_000, special=True, limit=8192)
    assert caught.value.reason == "CONTEXT_EXCEEDED"
    assert caught.value.metadata == {"bytes": "20000000", "context_length": "8192"}
    assert len(_BYTES.encode("hello", special=True, limit=1)) == 1


def test_several_threads_may_use_it() -> None:
    """All of them get the same."""
    text = "hello world 12 " * 200
    expected = _BYTES.encode(text, special=True)
    found: list[list[int]] = []

    def work() -> None:
        found.extend(_BYTES.encode(text, special=True) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 80


def test_characters_that_stand_for_no_byte_are_themselves() -> None:
    """Tokens that were added as they are."""
    assert byte_level.to_bytes("Ġhé") == b" h\xe9"
    assert byte_level.to_bytes("世界") == "世界".encode()


def test_no_template_is_none() -> None:
    """Such a model can't be given conversations."""
    assert template_of(byte_level_fields()) is None


def test_a_template_knows_the_names_of_tokens() -> None:
    """As the vocabulary has them."""
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    template = template_of({**byte_level_fields(), "tokenizer.chat_template": source})
    assert template is not None
    assert template.render([{"role": "user", "content": "x"}]) == "<|im_start|>x<|im_end|>"


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer.chat_template": 7},
        {"tokenizer.chat_template": "x", "tokenizer.ggml.bos_token_id": -1},
    ],
    ids=["no text", "no token"],
)
def test_a_template_that_lies_is_refused(changes: dict[str, Any]) -> None:
    """Before anything is rendered."""
    with pytest.raises(LoadError):
        template_of({**byte_level_fields(), **changes})
