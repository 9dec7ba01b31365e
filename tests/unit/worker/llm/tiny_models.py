"""Tiny random GGUF files of every family, written by the gguf package: real in form, small in everything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from services.modelfiles.architecture import Architecture, RopeFacts
from services.modelfiles.family import FAMILIES, Bias
from services.modelfiles.gguf_architecture import windows_by_period
from services.modelfiles.tensor_plan import Part, PlannedTensor, planned_tensors
from tests.unit.worker.llm.k_blocks import k_blocks

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiny:
    """What a file is made of; defaults make a small one with everything that the family has."""

    family: str = "llama"
    layers: int = 2
    hidden: int = 64
    feed_forward: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 16
    context: int = 256
    window: int = 8  # of families that have one
    precision: str = "F32"  # of matrices; a gguf type name
    fine_precision: str = ""  # of embedding, values and what goes down, as mixed files have it
    tied: bool = True
    biases: bool = False  # of families that may have them
    rope_factors: bool = False
    template: str | None = CHATML
    seed: int = 0
    keys: Mapping[str, Any] = field(default_factory=dict)  # metadata on top; None: left out

    @property
    def architecture(self) -> Architecture:
        family = FAMILIES[self.family]
        windows = (0,) * self.layers
        if family.window_pattern:
            windows = windows_by_period(self.window, family.window_pattern, self.layers)
        elif family.fused:
            windows = (self.window,) * self.layers
        return Architecture(
            family=family,
            layers=self.layers,
            hidden_size=self.hidden,
            feed_forward_size=self.feed_forward,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_size=self.head_size,
            vocabulary_size=len(vocabulary()),
            context_length=self.context,
            epsilon=1e-5,
            rope=RopeFacts(base=10_000.0, size=self.head_size),
            windows=windows,
            attention_scale=1.0,
        )


def vocabulary() -> list[str]:
    """Special tokens, the 256 bytes in GPT-2's letters, one merged pair, and unused ones: a multiple of 32."""
    tokens = [*SPECIAL, *byte_letters(), "he"]
    return tokens + [f"<unused{index}>" for index in range(-len(tokens) % 32)]


def byte_letters() -> list[str]:
    """GPT-2's letter of each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def write_tiny(path: Path, tiny: Tiny | None = None) -> Path:
    """Write the file; its tokenizer is byte level BPE with one merge."""
    tiny = tiny or Tiny()
    writer = GGUFWriter(path, tiny.family)
    for key, value in {**_sizes(tiny), **_tokenizer(tiny), **tiny.keys}.items():
        _put(writer, key, value)
    random = np.random.default_rng(tiny.seed)
    for planned in planned_tensors(tiny.architecture):
        if _is_there(tiny, planned):
            kind = _kind(tiny, planned)
            stored = _stored(planned, kind, random)
            writer.add_tensor(planned.key.gguf_name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _kind(tiny: Tiny, planned: PlannedTensor) -> GGMLQuantizationType:
    if len(planned.shape) == 1:
        return GGMLQuantizationType.F32
    is_fine = planned.key.part in {Part.EMBEDDING, Part.VALUE, Part.DOWN} and tiny.fine_precision
    return GGMLQuantizationType[tiny.fine_precision if is_fine else tiny.precision]


def _stored(
    planned: PlannedTensor, kind: GGMLQuantizationType, random: np.random.Generator
) -> np.ndarray[Any, np.dtype[Any]]:
    if kind.name.endswith("_K"):
        return k_blocks(planned.shape, kind, random)
    return quantize(_values(planned, random), kind)


def _is_there(tiny: Tiny, planned: PlannedTensor) -> bool:
    if planned.required:
        return True
    if planned.key.part is Part.HEAD:
        return not tiny.tied
    if planned.key.bias:
        return tiny.biases
    return tiny.rope_factors


def _values(
    planned: PlannedTensor, random: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.float32]]:
    if planned.key.part.name.endswith("FACTORS"):
        return random.uniform(1, 4, planned.shape).astype(np.float32)
    if len(planned.shape) == 2:
        # About as large as trained ones: activations neither vanish nor explode.
        return random.normal(0, planned.shape[1] ** -0.5, planned.shape).astype(np.float32)
    middle = 0.0 if planned.key.bias else 1.0
    return random.normal(middle, 0.2, planned.shape).astype(np.float32)


def _sizes(tiny: Tiny) -> dict[str, Any]:
    family = tiny.family
    sizes: dict[str, Any] = {
        f"{family}.block_count": tiny.layers,
        f"{family}.context_length": tiny.context,
        f"{family}.embedding_length": tiny.hidden,
        f"{family}.feed_forward_length": tiny.feed_forward,
        f"{family}.attention.head_count": tiny.heads,
        f"{family}.attention.head_count_kv": tiny.kv_heads,
        f"{family}.attention.key_length": tiny.head_size,
        f"{family}.attention.value_length": tiny.head_size,
        f"{family}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{family}.rope.freq_base": 10_000.0,
        f"{family}.rope.dimension_count": tiny.head_size,
        f"{family}.vocab_size": len(vocabulary()),
    }
    if any(tiny.architecture.windows):
        sizes[f"{family}.attention.sliding_window"] = tiny.window
    return sizes


def _tokenizer(tiny: Tiny) -> dict[str, Any]:
    tokens = vocabulary()
    special = len(SPECIAL)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            3 if index < special else 5 if token.startswith("<unused") else 1
            for index, token in enumerate(tokens)
        ],
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": tiny.template,
    }


def _put(writer: GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, Sequence):
        writer.add_array(key, value)


ALL: Mapping[str, Tiny] = {
    "llama": Tiny(),
    "llama with a head of its own, biases and factors": Tiny(
        tied=False, biases=True, rope_factors=True
    ),
    "qwen2": Tiny(family="qwen2", tied=False),
    "qwen3": Tiny(family="qwen3", head_size=32),
    "gemma3": Tiny(family="gemma3", layers=7, heads=2, kv_heads=1, head_size=32),
    "phi3": Tiny(family="phi3", tied=False),
}
assert {tiny.family for tiny in ALL.values()} == set(FAMILIES)
assert FAMILIES["qwen2"].qkv_bias is Bias.REQUIRED
# As files called Q4_K_M are: fine types where they matter most.
MIXED = Tiny(
    hidden=256, feed_forward=512, head_size=64, precision="Q4_K", fine_precision="Q6_K", tied=False
)
