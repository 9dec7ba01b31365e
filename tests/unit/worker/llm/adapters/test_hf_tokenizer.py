"""Tokenizers as published for `transformers`."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.hf_tokenizer import read_tokenizer, template_of
from tests.unit.worker.llm.tiny_models import byte_letters

_ROWS = 320


def _byte_level(*, normalizer: Any = None, begins: bool = False) -> tokenizers.Tokenizer:
    """Qwen's and Llama 3's kind."""
    words = [*byte_letters(), "he", "ll", "hell", "hello"]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o")]
    library = tokenizers.Tokenizer(
        models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges)
    )
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    if normalizer is not None:
        library.normalizer = normalizer
    library.add_special_tokens([AddedToken("<|begin|>"), AddedToken("<|end|>")])
    library.add_tokens([AddedToken("<think>", normalized=False)])
    if begins:
        library.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", len(words))]
        )
    return library


def _sentence_piece() -> tokenizers.Tokenizer:
    """Gemma's kind."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(0x100)), "▁", "h", "e", "▁h", "▁he"]
    library = tokenizers.Tokenizer(
        models.BPE(
            vocab={word: i for i, word in enumerate(words)},
            merges=[("▁", "h"), ("▁h", "e")],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    library.normalizer = normalizers.Replace(" ", "▁")
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    library.add_special_tokens([AddedToken("<unk>"), AddedToken("<end>")])
    return library


def _folder(path: Path, library: tokenizers.Tokenizer, **files: Any) -> Path:
    library.save(str(path / "tokenizer.json"))
    for name, contents in files.items():
        (path / f"{name}.json").write_text(json.dumps(contents))
    return path


_ONCE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=50,
)


@_ONCE
@given(text=st.text(max_size=30))
@pytest.mark.parametrize("library", [_byte_level(), _sentence_piece()], ids=["bytes", "pieces"])
def test_bytes_of_all_tokens_are_the_text(
    tmp_path: Path, library: tokenizers.Tokenizer, text: str
) -> None:
    """Whatever it is; SentencePiece's sign for a space is one."""
    tokenizer = read_tokenizer(_folder(tmp_path, library), _ROWS)
    whole = b"".join(map(tokenizer.token_name, tokenizer.encode(text, special=False)))
    expected = text if "ByteLevel" in str(library.decoder) else text.replace("▁", " ")
    assert whole == expected.encode()


def test_added_tokens_are_found_in_texts(tmp_path: Path) -> None:
    """Special ones stand for no bytes, others for their own."""
    tokenizer = read_tokenizer(_folder(tmp_path, _byte_level()), _ROWS)
    ids = tokenizer.encode("hello<think><|end|>", special=False)
    assert [tokenizer.token_bytes(token) for token in ids] == [b"hello", b"<think>", b""]
    assert [tokenizer.token_name(token) for token in ids] == [b"hello", b"<think>", b"<|end|>"]


def test_what_a_model_wants_before_a_text_is_there_once(tmp_path: Path) -> None:
    """Also where the text has it already, as chat templates write it."""
    tokenizer = read_tokenizer(_folder(tmp_path, _byte_level(begins=True)), _ROWS)
    begin = tokenizer.encode("<|begin|>", special=False)
    hello = tokenizer.encode("hello", special=False)
    assert len(begin) == len(hello) == 1
    assert tokenizer.encode("hello", special=True) == begin + hello
    assert tokenizer.encode("<|begin|>hello", special=True) == begin + hello


@pytest.mark.parametrize(
    ("files", "names"),
    [
        pytest.param({}, set(), id="nothing said"),
        pytest.param({"tokenizer_config": {"eos_token": "<|end|>"}}, {b"<|end|>"}, id="by text"),
        pytest.param(
            {"tokenizer_config": {"eos_token": {"content": "<|end|>"}}},
            {b"<|end|>"},
            id="by object",
        ),
        pytest.param({"generation_config": {"eos_token_id": 260}}, {b"<|begin|>"}, id="by id"),
        pytest.param(
            {"generation_config": {"eos_token_id": [260, 261]}, "config": {"eos_token_id": 0}},
            {b"<|begin|>", b"<|end|>", b"\x00"},
            id="by several ids",
        ),
    ],
)
def test_tokens_that_end_a_text(tmp_path: Path, files: dict[str, Any], names: set[bytes]) -> None:
    """All that any of the files says."""
    tokenizer = read_tokenizer(_folder(tmp_path, _byte_level(), **files), _ROWS)
    assert {tokenizer.token_name(token) for token in tokenizer.end_ids} == names


def test_a_composed_text_may_be_longer(tmp_path: Path) -> None:
    """Where texts are composed first, the bound leaves room for that."""
    plain = read_tokenizer(_folder(tmp_path, _byte_level()), _ROWS)
    composing = read_tokenizer(_folder(tmp_path, _byte_level(normalizer=normalizers.NFC())), _ROWS)
    text = "e\u0301" * 10
    assert len(composing.encode(text, special=False)) == 20
    assert len(composing.encode(text, special=False, limit=20)) == 20
    for tokenizer in (plain, composing):
        with pytest.raises(InvalidArgumentError, match="longer than any text of 8 tokens"):
            tokenizer.encode("x" * 500, special=False, limit=8)


def _changed(**changes: Any) -> str:
    form = json.loads(_byte_level().to_str())
    return json.dumps({**form, **changes})


def test_what_the_library_reads_otherwise_than_it_writes_is_read(tmp_path: Path) -> None:
    """It takes a list for a normaliser that puts something before texts; so texts change."""
    _folder(tmp_path, _byte_level())
    (tmp_path / "tokenizer.json").write_text(_changed(normalizer=["x"]))
    tokenizer = read_tokenizer(tmp_path, _ROWS)
    ids = tokenizer.encode("he", special=False)
    assert b"".join(map(tokenizer.token_bytes, ids)) == b"xhe"


@pytest.mark.parametrize(
    ("form", "told"),
    [
        pytest.param("{", "no JSON", id="no JSON"),
        pytest.param("[]", "not an object", id="no object"),
        pytest.param("[" * 100_000, "no JSON", id="nested without end"),
        pytest.param("{}", "`None` is not supported", id="no model"),
        pytest.param(_changed(model={"type": "Unigram"}), "`Unigram` is not supported", id="kind"),
        pytest.param(
            _changed(model={"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}),
            "tokenizer.json",
            id="merge of unknown tokens",
        ),
        pytest.param(
            _changed(
                model={"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": []}, added_tokens=[]
            ),
            "no token has id 1",
            id="ids with gaps",
        ),
    ],
)
def test_a_file_that_lies_is_refused(tmp_path: Path, form: str, told: str) -> None:
    """With its name and what is wrong."""
    (tmp_path / "tokenizer.json").write_text(form)
    with pytest.raises(LoadError, match=r"tokenizer\.json") as caught:
        read_tokenizer(tmp_path, _ROWS)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        pytest.param(
            {"generation_config": {"eos_token_id": 999}}, "999 is no token", id="unknown id"
        ),
        pytest.param(
            {"tokenizer_config": {"eos_token": "<no>"}}, "'<no>' is no token", id="unknown"
        ),
    ],
)
def test_files_beside_it_that_lie_are_refused(
    tmp_path: Path, files: dict[str, Any], told: str
) -> None:
    """A text that never ends would be the other choice."""
    with pytest.raises(LoadError, match=told):
        read_tokenizer(_folder(tmp_path, _byte_level(), **files), _ROWS)


def test_more_tokens_than_the_embedding_has_rows_are_refused(tmp_path: Path) -> None:
    """Rows without tokens are usual; tokens without rows can't be computed."""
    with pytest.raises(LoadError, match="there are 263 tokens; the embedding has 262 rows"):
        read_tokenizer(_folder(tmp_path, _byte_level()), 262)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(LoadError, match=r"tokenizer\.json: can't be read"):
        read_tokenizer(tmp_path, _ROWS)


_SOURCE = "{{ bos_token }}{{ messages[0].content }}"


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"chat_template": _SOURCE, "bos_token": "<s>"}, id="text"),
        pytest.param(
            {
                "chat_template": [
                    {"name": "tool_use", "template": "no"},
                    {"name": "default", "template": _SOURCE},
                ],
                "bos_token": {"content": "<s>"},
            },
            id="several by name",
        ),
    ],
)
def test_the_template_is_in_the_settings(tmp_path: Path, config: dict[str, Any]) -> None:
    """By itself or among others."""
    template = template_of(_folder(tmp_path, _byte_level(), tokenizer_config=config))
    assert template is not None
    assert template.render([{"role": "user", "content": "x"}]) == "<s>x"


def test_the_template_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    """Which comes first."""
    folder = _folder(tmp_path, _byte_level(), tokenizer_config={"chat_template": "old"})
    (folder / "chat_template.jinja").write_text("new")
    template = template_of(folder)
    assert template is not None
    assert template.render([]) == "new"


def test_no_template_is_none(tmp_path: Path) -> None:
    """Neither a file nor a word."""
    assert template_of(_folder(tmp_path, _byte_level())) is None
