"""The architecture of a model from the `config.json` that it is published with for `transformers`."""

import math
from collections.abc import Mapping
from typing import Any

from services.modelfiles.architecture import MAX_LAYERS, Architecture, RopeFacts, bounded
from services.modelfiles.errors import ModelFileError
from services.modelfiles.family import Family, family_of_hf
from services.modelfiles.gguf_architecture import windows_by_period

_ACTIVATIONS = {"silu": ("silu", "swish"), "gelu_tanh": ("gelu_pytorch_tanh", "gelu_tanh")}
_WINDOWS_ON_REQUEST = {"qwen2", "qwen3"}  # a size is there, but used only if the file says so
_LARGEST = 2**63 - 1  # JSON's numbers may have any length, and floats are made of them
_FULL = "full_attention"
_SLIDING = "sliding_attention"


def hf_architecture(config: Mapping[str, Any]) -> Architecture:
    """What the file says, checked. Raises ModelFileError."""
    family = family_of_hf(config.get("model_type"))
    said = _Said(config)
    _refuse_what_is_missing_here(said, family)
    layers = bounded(
        "config.json: num_hidden_layers", said.integer("num_hidden_layers"), MAX_LAYERS
    )
    hidden, heads = said.integer("hidden_size"), said.integer("num_attention_heads")
    head_size = said.integer("head_dim", hidden // max(heads, 1))
    rope, local_rope = _ropes(said, family, head_size)
    return Architecture(
        family=family,
        layers=layers,
        hidden_size=hidden,
        feed_forward_size=said.integer("intermediate_size"),
        heads=heads,
        kv_heads=said.integer("num_key_value_heads", heads),
        head_size=head_size,
        vocabulary_size=said.integer("vocab_size"),
        context_length=said.integer("max_position_embeddings"),
        epsilon=said.number("rms_norm_eps"),
        rope=rope,
        local_rope=local_rope,
        windows=_windows(said, family, layers),
        attention_scale=_attention_scale(said, head_size),
        attention_softcap=said.number("attn_logit_softcapping", 0.0),
        logit_softcap=said.number("final_logit_softcapping", 0.0),
    )


def is_tied(config: Mapping[str, Any], family: Family) -> bool:
    """Whether the embedding is the head, too."""
    return bool(config.get("tie_word_embeddings", family.hf_tied))


class _Said:
    """Numbers of a `config.json`; null is as good as absent."""

    def __init__(self, config: Mapping[str, Any], where: str = "config.json") -> None:
        self.config = config
        self.where = where

    def place(self, key: str) -> str:
        return f"{self.where}: {key}"

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._present(key, default)
        if type(value) is not int or abs(value) > _LARGEST:
            raise ModelFileError(self.place(key), _cut(value), "a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._present(key, default)
        if type(value) not in {int, float} or not abs(value) < 1e300:
            raise ModelFileError(self.place(key), _cut(value), "a number")
        return float(value)

    def get(self, key: str, default: Any = None) -> Any:
        value = self.config.get(key)
        return default if value is None else value

    def _present(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is None:
            raise ModelFileError(self.place(key), "is missing", "a file that has it")
        return value


def _cut(value: object) -> str:
    return ascii(value)[:100]


def _refuse_what_is_missing_here(said: _Said, family: Family) -> None:
    if said.get("quantization_config") is not None:
        raise ModelFileError(
            said.place("quantization_config"), "is there", "weights as F32, F16 or BF16"
        )
    allowed = _ACTIVATIONS[family.activation]
    given = said.get("hidden_activation", said.get("hidden_act", allowed[0]))
    if given not in allowed:
        raise ModelFileError(said.place("hidden_act"), _cut(given), ", ".join(allowed))
    partial = said.get("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise ModelFileError(said.place("partial_rotary_factor"), _cut(partial), "1")


def _ropes(said: _Said, family: Family, size: int) -> tuple[RopeFacts, RopeFacts | None]:
    """Of layers that see everything, and of those with a window where they differ."""
    # Newer files: all in `rope_parameters`, one for each kind of layer where kinds differ.
    parameters = said.get("rope_parameters", {})
    if not isinstance(parameters, dict):
        raise ModelFileError(said.place("rope_parameters"), _cut(parameters), "an object")
    bases = (said.number("rope_theta", 10_000.0), said.number("rope_local_base_freq", 10_000.0))
    local: RopeFacts | None = None
    if isinstance(parameters.get(_FULL), dict):
        nearby = parameters.get(_SLIDING)
        if family.local_rope_base and isinstance(nearby, dict):
            local = _rope(nearby, bases[1], size)
        return _rope(parameters[_FULL], bases[0], size), local
    if family.local_rope_base:
        local = RopeFacts(base=bases[1], size=size)
    scaling = parameters or said.get("rope_scaling", {})
    if not isinstance(scaling, dict):
        raise ModelFileError(said.place("rope_scaling"), _cut(scaling), "an object")
    return _rope(scaling, bases[0], size), local


def _rope(scaling: Mapping[str, Any], base: float, size: int) -> RopeFacts:
    said = _Scaling(scaling)
    kind = said.get("rope_type", said.get("type", "default"))
    base = said.number("rope_theta", base)
    if kind == "default":
        return RopeFacts(base=base, size=size)
    if kind == "linear":
        return RopeFacts(base=base, size=size, scale=said.number("factor"))
    if kind == "llama3":
        return RopeFacts(base=base, size=size, factors=_llama3_factors(said, base, size))
    raise ModelFileError(said.place("rope_type"), _cut(kind), "default, linear, llama3")


class _Scaling(_Said):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config, "config.json: rope_scaling")


def _llama3_factors(said: _Said, base: float, size: int) -> tuple[float, ...]:
    """Long waves are slowed by the factor, short ones stay, between them it changes evenly."""
    factor, low, high = (
        said.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor")
    )
    original = said.integer("original_max_position_embeddings")
    if not (0 < low < high and factor > 0 and base > 0):
        raise ModelFileError(said.place("factor"), "factors out of order", "0 < low < high")
    found = []
    for index in range(0, min(size, 4096), 2):
        turns = original / (2 * math.pi * base ** (index / size))
        share = min(max((turns - low) / (high - low), 0.0), 1.0)
        found.append(1 / (share + (1 - share) / factor))
    return tuple(found)


def _windows(said: _Said, family: Family, layers: int) -> tuple[int, ...]:
    window = said.integer("sliding_window", 0)
    kinds = said.get("layer_types")
    asked_for = family.name in _WINDOWS_ON_REQUEST
    if not said.get("use_sliding_window", not asked_for):
        window = 0
    if isinstance(kinds, list) and window:
        if len(kinds) != layers or not all(kind in (_FULL, _SLIDING) for kind in kinds):
            raise ModelFileError(
                said.place("layer_types"), _cut(kinds), f"{layers} of {_FULL}, {_SLIDING}"
            )
        return tuple(window if kind == _SLIDING else 0 for kind in kinds)
    if family.window_pattern:
        period = said.integer("sliding_window_pattern", family.window_pattern)
        return windows_by_period(window, period, layers)
    if asked_for:
        first = said.integer("max_window_layers", 0)
        return tuple(window if layer >= first else 0 for layer in range(layers))
    return (window,) * layers


def _attention_scale(said: _Said, head_size: int) -> float:
    key = "query_pre_attn_scalar"
    given = said.number(key, float(max(head_size, 1)))
    if given <= 0:
        raise ModelFileError(said.place(key), _cut(given), "above 0")
    return float(given**-0.5)
