"""The architecture of a model from the metadata of its GGUF file."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from services.modelfiles.architecture import MAX_LAYERS, Architecture, RopeFacts, bounded
from services.modelfiles.errors import ModelFileError
from services.modelfiles.family import Family, family_of_gguf
from services.modelfiles.gguf_header import GgufHeader

SHORT_FACTORS = "rope_factors_short.weight"  # Phi-3 with a long context
# Its attention is scaled otherwise, and no key says so (llama.cpp, gemma3 graph).
_GEMMA_27B_LAYERS = 62


def gguf_architecture(header: GgufHeader) -> Architecture:
    """What the file says, checked. Raises ModelFileError."""
    family = family_of_gguf(header.metadata.get("general.architecture"))
    keys = _Keys(header.metadata, family.name)
    _refuse_what_is_missing_here(header.metadata, keys)
    layers = bounded(keys.name("block_count"), keys.integer("block_count"), MAX_LAYERS)
    hidden, heads = keys.integer("embedding_length"), keys.integer("attention.head_count")
    head_size = keys.integer("attention.key_length", hidden // max(heads, 1))
    keys.require("attention.value_length", head_size, (head_size,))
    longrope = SHORT_FACTORS in header.tensors
    rope = _rope(keys, head_size, longrope=longrope)
    if family.gguf_interleaved:
        keys.require("rope.dimension_count", head_size, (head_size,))
    return Architecture(
        family=family,
        layers=layers,
        hidden_size=hidden,
        feed_forward_size=keys.integer("feed_forward_length"),
        heads=heads,
        kv_heads=keys.integer("attention.head_count_kv", heads),
        head_size=head_size,
        vocabulary_size=_vocabulary_size(header),
        context_length=_context_length(keys, longrope=longrope),
        epsilon=keys.number("attention.layer_norm_rms_epsilon"),
        rope=rope,
        local_rope=_local_rope(keys, family, rope),
        windows=_windows(keys, family, layers),
        attention_scale=_attention_scale(keys, family, head_size),
        attention_softcap=keys.number("attn_logit_softcapping", 0.0),
        logit_softcap=keys.number("final_logit_softcapping", 0.0),
    )


class _Keys:
    """Numbers under keys of an architecture."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self._metadata = metadata
        self._prefix = architecture

    def name(self, key: str) -> str:
        return f"{self._prefix}.{key}"

    def get(self, key: str) -> Any:
        value = self._metadata.get(self.name(key))
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            return value[0].item()  # one for each layer, all the same
        return value

    def array(self, key: str) -> np.ndarray[Any, np.dtype[Any]] | None:
        """One value for each layer; None: there is one for all, or none."""
        value = self._metadata.get(self.name(key))
        return value if isinstance(value, np.ndarray) else None

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._present(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelFileError(self.name(key), _said(value), "a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._present(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ModelFileError(self.name(key), _said(value), "a number")
        return float(value)

    def require(self, key: str, default: Any, allowed: tuple[Any, ...]) -> Any:
        """A value that is one of these, or absent."""
        value = self._present(key, default)
        if value not in allowed:
            listed = ", ".join(str(item) for item in allowed)
            raise ModelFileError(self.name(key), f"{_said(value)} is not supported", listed)
        return value

    def _present(self, key: str, default: Any) -> Any:
        value = self.get(key)
        value = default if value is None else value
        if value is None:
            raise ModelFileError(self.name(key), "is missing", "a file that has it")
        if isinstance(value, (np.ndarray, list)):
            raise ModelFileError(
                self.name(key), "an array of different values", "one for all layers"
            )
        return value


def _said(value: object) -> str:
    return ascii(value) if len(str(value)) < 100 else f"{str(value)[:100]!a}…"


def _refuse_what_is_missing_here(metadata: Mapping[str, Any], keys: _Keys) -> None:
    """Parts that no key of ours would show, and without which the text would be wrong."""
    kind = metadata.get("general.type", "model")
    if not isinstance(kind, str) or kind != "model":
        raise ModelFileError("general.type", f"{_said(kind)} is not supported", "'model'")
    files = metadata.get("split.count", 1)
    if not isinstance(files, int) or files not in {0, 1}:
        raise ModelFileError("split.count", _said(files), "one file")
    keys.require("expert_count", 0, (0,))
    keys.require("attention.causal", 1, (1,))


def _vocabulary_size(header: GgufHeader) -> int:
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFileError("tensor 'token_embd.weight'", "is missing", "a file that has it")
    return embedding.shape[0]


def _rope(keys: _Keys, head_size: int, *, longrope: bool) -> RopeFacts:
    kind = keys.require("rope.scaling.type", "none", ("none", "linear", "longrope"))
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0))
    return RopeFacts(
        base=keys.number("rope.freq_base", 10_000.0),
        size=keys.integer("rope.dimension_count", head_size),
        scale=factor if kind == "linear" else 1.0,
        magnitude=keys.number("rope.scaling.attn_factor", 1.0) if longrope else 1.0,
    )


def _local_rope(keys: _Keys, family: Family, rope: RopeFacts) -> RopeFacts | None:
    if not family.local_rope_base:
        return None
    return RopeFacts(base=keys.number("rope.freq_base_swa", family.local_rope_base), size=rope.size)


def _context_length(keys: _Keys, *, longrope: bool) -> int:
    context = keys.integer("context_length")
    if longrope:
        # Beyond it other factors hold, also for what is cached already.
        return min(context, keys.integer("rope.scaling.original_context_length", context))
    return context


def _windows(keys: _Keys, family: Family, layers: int) -> tuple[int, ...]:
    window = keys.integer("attention.sliding_window", 0)
    if not family.window_pattern:
        return (window if family.name == "phi3" else 0,) * layers
    local = keys.array("attention.sliding_window_pattern")  # newer files: whether each layer has it
    if local is not None and len(local) == layers and local.dtype == np.bool_:
        return tuple(window if has_window else 0 for has_window in local.tolist())
    period = keys.integer("attention.sliding_window_pattern", family.window_pattern)
    return windows_by_period(window, period, layers)


def windows_by_period(window: int, period: int, layers: int) -> tuple[int, ...]:
    """Every `period`-th layer sees everything, the others as much as the window."""
    return tuple(
        0 if period and layer % period == period - 1 else window for layer in range(layers)
    )


def _attention_scale(keys: _Keys, family: Family, head_size: int) -> float:
    usual = 1 / math.sqrt(max(head_size, 1))
    if family.name == "gemma3" and keys.integer("block_count") == _GEMMA_27B_LAYERS:
        heads = max(keys.integer("attention.head_count"), 1)
        usual = math.sqrt(heads / max(keys.integer("embedding_length"), 1))
    return keys.number("attention.scale", usual)
