"""Language models in GGUF files: what a header must say together, whatever it says alone."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf.constants import GGMLQuantizationType

from services.modelfiles.errors import ModelFileError
from services.modelfiles.family import FAMILIES
from services.modelfiles.gguf_model import gguf_model
from tests.unit.worker.llm.tiny_models import ALL, Tiny, vocabulary, write_tiny


@pytest.mark.parametrize("tiny", ALL.values(), ids=ALL.keys())
def test_every_family_is_read(tmp_path: Path, tiny: Tiny) -> None:
    """Sizes are those that were written, down to the last tensor."""
    file = gguf_model(write_tiny(tmp_path / "m.gguf", tiny))
    a = file.architecture
    assert (a.family.name, a.layers, a.hidden_size) == (tiny.family, tiny.layers, tiny.hidden)
    assert (a.heads, a.kv_heads, a.head_size) == (tiny.heads, tiny.kv_heads, tiny.head_size)
    assert (a.vocabulary_size, a.context_length) == (len(vocabulary()), tiny.context)
    assert a.windows == tiny.architecture.windows
    assert file.tied == tiny.tied
    assert file.precision == "F32"
    assert file.interleaved == (tiny.family == "llama")


def refusal(path: Path, **keys: Any) -> str:
    """What is said of a llama file with these keys; `None` leaves one out."""
    named = {name.replace("__", "."): value for name, value in keys.items()}
    write_tiny(path / "m.gguf", Tiny(keys=named))
    with pytest.raises(ModelFileError) as refused:
        gguf_model(path / "m.gguf")
    return str(refused.value)


WRONG: Mapping[str, tuple[dict[str, Any], str]] = {
    "an architecture that is not known": (
        {"general__architecture": "rwkv7"},
        "general.architecture: 'rwkv7' is not supported; allowed: llama, qwen2, qwen3, gemma3, phi3",
    ),
    "an adapter": (
        {"general__type": "adapter"},
        "general.type: 'adapter' is not supported; allowed: 'model'",
    ),
    "one of several files": ({"split__count": 3}, "split.count: 3; allowed: one file"),
    "experts": (
        {"llama__expert_count": 8},
        "llama.expert_count: 8 is not supported; allowed: 0",
    ),
    "a key that is missing": (
        {"llama__block_count": None},
        "llama.block_count: is missing; allowed: a file that has it",
    ),
    "a key that is a text": (
        {"llama__block_count": "two"},
        "llama.block_count: 'two'; allowed: a whole number",
    ),
    "more layers than there can be": (
        {"llama__block_count": 2**32 - 1},
        "llama.block_count: 4294967295; allowed: 1 to 1024",
    ),
    "more layers than there are tensors of": ({"llama__block_count": 3}, "'blk.2.attn_q.weight'"),
    "fewer layers than there are tensors of": (
        {"llama__block_count": 1},
        "'blk.1.attn_q.weight'",
    ),
    "no heads": ({"llama__attention__head_count": 0}, "heads: 0; allowed: 1 to 1024"),
    "heads that don't share": (
        {"llama__attention__head_count_kv": 3},
        "key-value heads: 3 of 4 heads; allowed: a divisor of it",
    ),
    "different heads in each layer": (
        {"llama__attention__head_count_kv": [2, 1]},
        "llama.attention.head_count_kv: an array of different values; allowed: one for all layers",
    ),
    "a hidden size that tensors don't have": (
        {"llama__embedding_length": 96},
        "tensor 'token_embd.weight': shape [288, 64]; allowed: [288, 96] by its metadata",
    ),
    "a hidden size that is not in blocks": (
        {"llama__embedding_length": 65},
        "hidden size: 65; allowed: multiples of 32 up to 65536",
    ),
    "another size of values": (
        {"llama__attention__value_length": 8},
        "llama.attention.value_length: 8 is not supported; allowed: 16",
    ),
    "heads that attention can't take": (
        {
            "llama__attention__key_length": 24,
            "llama__attention__value_length": 24,
            "llama__rope__dimension_count": 24,
        },
        "head size: 24; allowed: multiples of 16 up to 256",
    ),
    "half of a head turned": (
        {"llama__rope__dimension_count": 8},
        "llama.rope.dimension_count: 8 is not supported; allowed: 16",
    ),
    "another way of scaling": (
        {"llama__rope__scaling__type": "yarn"},
        "llama.rope.scaling.type: 'yarn' is not supported; allowed: none, linear, longrope",
    ),
    "a base that is no number": (
        {"llama__rope__freq_base": math.nan},
        "base of rotation: nan; allowed: above 0, and finite",
    ),
    "an epsilon of zero": (
        {"llama__attention__layer_norm_rms_epsilon": 0.0},
        "epsilon of norms: 0; allowed: between 0 and 1",
    ),
    "no context": ({"llama__context_length": 0}, "context length: 0; allowed: 1 to 16777216"),
}


@pytest.mark.parametrize(("keys", "said"), WRONG.values(), ids=WRONG.keys())
def test_metadata_that_does_not_add_up(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    """The text names the key, what it says and what it may say."""
    assert said in refusal(tmp_path, **keys)


def test_part_of_a_head_may_be_turned_where_all_targets_can(tmp_path: Path) -> None:
    """Phi has such models: 16 of 32 elements can be computed everywhere, 8 can't."""

    def turned(size: int) -> int:
        keys = {"phi3.rope.dimension_count": size}
        tiny = Tiny(family="phi3", tied=False, head_size=32, keys=keys)
        return gguf_model(write_tiny(tmp_path / "m.gguf", tiny)).architecture.rope.size

    assert turned(16) == 16
    with pytest.raises(ModelFileError, match="rotated size: 8; allowed: multiples of 16 up to 32"):
        turned(8)


def retyped(path: Path, name: str, kind: GGMLQuantizationType) -> Path:
    """A file in whose header one tensor has another type."""
    content = bytearray(write_tiny(path).read_bytes())
    after = content.index(name.encode()) + len(name)
    dimensions = int.from_bytes(content[after : after + 4], "little")
    at = after + 4 + 8 * dimensions
    content[at : at + 4] = int(kind).to_bytes(4, "little")
    path.write_bytes(content)
    return path


def test_types_that_are_not_served_are_refused_by_name(tmp_path: Path) -> None:
    """The tensor, its type, and all that are allowed."""
    path = retyped(tmp_path / "m.gguf", "blk.0.attn_q.weight", GGMLQuantizationType.IQ4_XS)
    with pytest.raises(
        ModelFileError, match=r"'blk\.0\.attn_q\.weight': type IQ4_XS is not .*Q6_K"
    ):
        gguf_model(path)


def test_vectors_are_floats(tmp_path: Path) -> None:
    """A norm that is quantised is refused."""
    path = retyped(tmp_path / "m.gguf", "blk.0.attn_norm.weight", GGMLQuantizationType.Q8_0)
    with pytest.raises(ModelFileError, match=r"type Q8_0 for a vector; allowed: BF16, F16, F32"):
        gguf_model(path)


def test_tensors_that_are_not_known_are_refused(tmp_path: Path) -> None:
    """A part that would be left out makes wrong text; its name is said."""
    path = write_tiny(tmp_path / "m.gguf", Tiny(family="qwen3", keys={}))
    changed = path.read_bytes().replace(b"blk.0.attn_q_norm.weight", b"blk.0.attn_q_gate.weight")
    path.write_bytes(changed)
    with pytest.raises(ModelFileError, match=r"'blk\.0\.attn_q_norm\.weight' is missing"):
        gguf_model(path)
    biased = Tiny(biases=True)
    path = write_tiny(tmp_path / "n.gguf", biased)
    changed = path.read_bytes().replace(b"blk.1.attn_q.bias", b"blk.1.attn_x.bias")
    path.write_bytes(changed)
    with pytest.raises(ModelFileError, match=r"'blk\.1\.attn_x\.bias' is not known in llama"):
        gguf_model(path)


def test_one_value_for_all_layers_may_be_an_array(tmp_path: Path) -> None:
    """Some writers say the same for each layer."""
    keys = {"llama.feed_forward_length": [96, 96]}
    file = gguf_model(write_tiny(tmp_path / "m.gguf", Tiny(keys=keys)))
    assert file.architecture.feed_forward_size == 96


def test_positions_may_be_scaled(tmp_path: Path) -> None:
    """Linear scaling divides positions by its factor."""
    keys = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    file = gguf_model(write_tiny(tmp_path / "m.gguf", Tiny(keys=keys)))
    assert file.architecture.rope.scale == 4.0


def test_families_have_their_own_numbers(tmp_path: Path) -> None:
    """Gemma's local layers turn by another base, and its embedding is scaled; Phi-3's long context is cut."""
    gemma = gguf_model(write_tiny(tmp_path / "g.gguf", ALL["gemma3"])).architecture
    assert gemma.local_rope is not None
    assert gemma.local_rope.base == 10_000
    assert gemma.embedding_scale == 8.0
    assert gemma.windows == (8, 8, 8, 8, 8, 0, 8)
    pattern = {
        "gemma3.attention.sliding_window_pattern": [True, False, True, True, False, True, True]
    }
    newer = gguf_model(write_tiny(tmp_path / "n.gguf", replace(ALL["gemma3"], keys=pattern)))
    assert newer.architecture.windows == (8, 0, 8, 8, 0, 8, 8)
    keys = {"phi3.rope.scaling.original_context_length": 64, "phi3.rope.scaling.attn_factor": 1.25}
    long = Tiny(family="phi3", tied=False, rope_factors=True, keys=keys)
    phi = gguf_model(write_tiny(tmp_path / "p.gguf", long)).architecture
    assert (phi.context_length, phi.rope.magnitude) == (64, 1.25)
    assert set(FAMILIES) == {"llama", "qwen2", "qwen3", "gemma3", "phi3"}
