"""Families of language models that can be served, and in what they differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from services.modelfiles.errors import ModelFileError


class Bias(Enum):
    """Whether linears have one."""

    NONE = "none"
    OPTIONAL = "optional"  # where the file has it
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What sets a family apart; the rest is the same in all."""

    name: str  # GGUF's `general.architecture`
    hf_types: tuple[str, ...]  # `model_type` in `config.json`
    activation: str = "silu"
    # GGUF has the halves of each query and key head interleaved.
    gguf_interleaved: bool = False
    qkv_bias: Bias = Bias.NONE
    other_bias: Bias = Bias.NONE
    head_norms: bool = False  # of queries and keys
    post_norms: bool = False  # of what attention and feed forward give
    fused: bool = False  # query, key and value are one tensor, gate and up another
    scaled_embedding: bool = False  # by the root of hidden_size
    hf_norm_offset: float = 0.0  # what is added to norms of `safetensors`; GGUF's have it in them
    hf_tied: bool = False  # where `config.json` says nothing
    window_pattern: int = 0  # each so-manieth layer sees everything; 0: all do as the file says
    local_rope_base: float = 0.0  # of layers with a window; 0: as the others


_ALL = (
    Family(
        name="llama",
        hf_types=("llama", "mistral"),
        gguf_interleaved=True,
        qkv_bias=Bias.OPTIONAL,
        other_bias=Bias.OPTIONAL,
    ),
    Family(name="qwen2", hf_types=("qwen2",), qkv_bias=Bias.REQUIRED),
    Family(name="qwen3", hf_types=("qwen3",), qkv_bias=Bias.OPTIONAL, head_norms=True),
    Family(
        name="gemma3",
        hf_types=("gemma3_text",),
        activation="gelu_tanh",
        head_norms=True,
        post_norms=True,
        scaled_embedding=True,
        hf_norm_offset=1.0,
        hf_tied=True,
        window_pattern=6,
        local_rope_base=10_000.0,
    ),
    Family(name="phi3", hf_types=("phi3",), fused=True),
)
FAMILIES: Mapping[str, Family] = {family.name: family for family in _ALL}
_BY_HF_TYPE: Mapping[str, Family] = {kind: family for family in _ALL for kind in family.hf_types}


def family_of_gguf(architecture: object) -> Family:
    """By the name in a GGUF file; ModelFileError with that name and those that are allowed."""
    return _find("general.architecture", architecture, FAMILIES)


def family_of_hf(model_type: object) -> Family:
    """By the `model_type` in a `config.json`; ModelFileError as for GGUF."""
    return _find("config.json: model_type", model_type, _BY_HF_TYPE)


def _find(place: str, name: object, known: Mapping[str, Family]) -> Family:
    if not isinstance(name, str) or name not in known:
        given = "is not there" if name is None else f"{str(name)[:100]!a} is not supported"
        raise ModelFileError(place, given, ", ".join(known))
    return known[name]
