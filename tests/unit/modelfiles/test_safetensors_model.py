"""Models of `transformers`: their configuration and weights, and what is wrong with them."""

import json
import math
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from services.modelfiles.errors import ModelFileError
from services.modelfiles.model_file import ModelFile
from services.modelfiles.safetensors_header import read_tensors
from services.modelfiles.safetensors_model import safetensors_model
from tests.unit.worker.llm.tiny_folders import write_folder
from tests.unit.worker.llm.tiny_models import ALL, Tiny

# What GGUF alone has: factors as a tensor, and biases of feed forward.
FOLDERS = {name: tiny for name, tiny in ALL.items() if not tiny.rope_factors}


def opened(folder: Path) -> ModelFile:
    return safetensors_model({path.name: path for path in folder.iterdir()})


@pytest.mark.parametrize("tiny", FOLDERS.values(), ids=FOLDERS.keys())
def test_every_family_is_read(tmp_path: Path, tiny: Tiny) -> None:
    """The architecture is the one that its GGUF file has."""
    file = opened(write_folder(tmp_path, tiny))
    a, written = file.architecture, tiny.architecture
    assert (a.family, a.layers, a.heads) == (written.family, written.layers, written.heads)
    assert (a.kv_heads, a.head_size, a.windows) == (tiny.kv_heads, tiny.head_size, written.windows)
    assert a.attention_scale == pytest.approx(1 / math.sqrt(tiny.head_size))
    assert (file.tied, file.has_chat_template) == (tiny.tied, True)
    assert file.norm_offset == (1.0 if tiny.family == "gemma3" else 0.0)


WRONG: Mapping[str, tuple[dict[str, Any], str]] = {
    "an architecture that is not known": (
        {"model_type": "gpt2"},
        "config.json: model_type: 'gpt2' is not supported; allowed: llama, mistral, qwen2, qwen3, gem",
    ),
    "no architecture": ({"model_type": None}, "config.json: model_type: is not there; allowed: ll"),
    "weights of its own kind": (
        {"quantization_config": {"bits": 4}},
        "config.json: quantization_config: is there; allowed: weights as F32, F16 or BF16",
    ),
    "another activation": (
        {"hidden_act": "relu"},
        "config.json: hidden_act: 'relu'; allowed: silu",
    ),
    "a size that is a text": (
        {"hidden_size": "64"},
        "config.json: hidden_size: '64'; allowed: a whole number",
    ),
    "a size that is true": (
        {"num_attention_heads": True},
        "config.json: num_attention_heads: True; allowed: a whole number",
    ),
    "a size that is missing": (
        {"intermediate_size": None},
        "config.json: intermediate_size: is missing",
    ),
    "an endless number": (
        {"rope_theta": math.inf},
        "config.json: rope_theta: inf; allowed: a number",
    ),
    "too many layers": (
        {"num_hidden_layers": 10**9},
        "config.json: num_hidden_layers: 1000000000; allowed: 1 to 1024",
    ),
    "another way of scaling": (
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        "config.json: rope_scaling: rope_type: 'yarn'; allowed: default, linear, llama3",
    ),
    "scaling that is a text": (
        {"rope_scaling": "x"},
        "config.json: rope_scaling: 'x'; allowed: an",
    ),
    "half of a head turned": (
        {"partial_rotary_factor": 0.5},
        "config.json: partial_rotary_factor: 0.5; allowed: 1",
    ),
    "a vocabulary that the embedding doesn't have": (
        {"vocab_size": 300},
        "tensor 'model.embed_tokens.weight': shape [288, 64]; allowed: [300, 64] by its metadata",
    ),
    "a head that is not there": (
        {"tie_word_embeddings": False},
        "tensor 'lm_head.weight': is missing; allowed: as embeddings are not tied",
    ),
}


@pytest.mark.parametrize(("config", "said"), WRONG.values(), ids=WRONG.keys())
def test_configurations_that_do_not_add_up(
    tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    """The text names the key, what it says and what it may say."""
    folder = write_folder(tmp_path, Tiny(), config)
    with pytest.raises(ModelFileError) as refused:
        opened(folder)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000])
def test_files_that_are_no_json(tmp_path: Path, name: str, text: str) -> None:
    """They are refused by their names."""
    folder = write_folder(tmp_path, Tiny())
    (folder / name).write_text(text)
    with pytest.raises(ModelFileError, match=f"^{name}: "):
        opened(folder)


def test_scaling_of_llama_3(tmp_path: Path) -> None:
    """Short waves stay, long ones are slowed by the factor."""
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    file = opened(write_folder(tmp_path, Tiny(), {"rope_scaling": scaling}))
    factors = file.architecture.rope.factors
    assert (factors[0], factors[-1]) == (1.0, 8.0)
    assert all(1 <= one <= following for one, following in pairwise(factors))


def test_newer_files_say_windows_and_bases_otherwise(tmp_path: Path) -> None:
    """`rope_parameters` and `layer_types`, as newer releases write them."""
    newer = {
        "rope_theta": None,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
        },
        "layer_types": ["full_attention", "sliding_attention"] * 3 + ["full_attention"],
    }
    a = opened(write_folder(tmp_path, ALL["gemma3"], newer)).architecture
    assert (a.rope.base, a.rope.scale) == (1e6, 8.0)
    assert a.local_rope is not None
    assert a.local_rope.base == 5000.0
    assert a.windows == (0, 8, 0, 8, 0, 8, 0)


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        ({"sliding_window": 4}, (0, 0)),
        ({"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1}, (0, 4)),
    ],
)
def test_qwen_asks_for_its_windows(
    tmp_path: Path, config: dict[str, Any], windows: tuple[int, ...]
) -> None:
    """A size alone means nothing there."""
    folder = write_folder(tmp_path, Tiny(family="qwen2"), config)
    assert opened(folder).architecture.windows == windows


def raw(header: object, content: bytes = bytes(64), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + content


def one(**changes: Any) -> dict[str, Any]:
    return {"t": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64], **changes}}


LIES = {
    "an empty file": (b"", "header: 0 bytes"),
    "a header beyond the file": (raw({}, length=2**62), "header: 4611686018427387904 bytes"),
    "no JSON": (raw(b"{{"), "header: no JSON"),
    "a deep nest": (raw(b"[" * 200_000), "header: no JSON"),
    "a list": (raw([]), "header: list"),
    "a tensor twice": (raw(b'{"t": 1, "t": 2}'), "header: no JSON .a key is there twice"),
    "a tensor that is no object": (raw({"t": 1}), "tensor 't': is not described"),
    "no shape": (raw(one(shape=[])), r"shape \[\]; allowed: 1 to 8 sizes above 0"),
    "a size of zero": (raw(one(shape=[0, 4])), r"shape \[0, 4\]; allowed: 1 to 8 sizes above 0"),
    "a size that is no number": (raw(one(shape=["4"])), "sizes above 0"),
    "more sizes than there are of any tensor": (raw(one(shape=[1] * 9)), "1 to 8 sizes"),
    "sizes whose product nobody can write down": (raw(one(shape=[10**4000] * 3)), "1 to 8 sizes"),
    "bytes beyond the file": (raw(one(data_offsets=[0, 128])), "bytes 0 to 128 of 64"),
    "an end before its beginning": (raw(one(data_offsets=[64, 0])), "bytes 64 to 0 of 64"),
    "fewer bytes than the shape has": (
        raw(one(shape=[4, 3])),
        r"64 bytes; allowed: 48, as its shape is \[4, 3\] and its type F32",
    ),
    "two tensors in one place": (
        raw({"a": one()["t"], "b": one()["t"]}),
        "tensor 'b': begins inside 'a'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "said"), LIES.values(), ids=LIES.keys())
def test_lies_of_headers_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """The text names the file, the tensor, what is there and what is allowed."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=said):
        read_tensors(path, "m.safetensors")


def test_types_that_are_not_served_are_refused_by_name(tmp_path: Path) -> None:
    """The tensor and its type."""
    folder = write_folder(tmp_path, Tiny())
    for path in folder.glob("*.safetensors"):
        path.write_bytes(path.read_bytes().replace(b'"dtype":"F32"', b'"dtype":"I32"'))
    with pytest.raises(ModelFileError, match="type I32 is not supported; allowed: F32, F16, BF16"):
        opened(folder)
