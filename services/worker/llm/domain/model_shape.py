"""Sizes of a language model that its engine and its callers' limits depend on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes as the model's file says them."""

    architecture: str  # `llama`, `qwen2`, `qwen3`, `gemma3` …
    layers: int
    hidden_size: int
    feed_forward_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary_size: int
    context_length: int  # tokens of prompt and answer together
    rms_epsilon: float
    rope_base: float
    rope_size: int  # leading elements of each head that are rotated
    tied_embedding: bool
    # Per layer: tokens that it looks back on, 0 for all; empty: all layers all.
    windows: tuple[int, ...] = ()
    parameters: int = 0
    precision: str = ""  # how most weights are stored
