"""Sizes and numbers of a language model, whatever file says them."""

import math
from dataclasses import dataclass

from services.modelfiles.errors import ModelFileError
from services.modelfiles.family import Family

MAX_LAYERS = 1024
MAX_HIDDEN = 65_536
MAX_FEED_FORWARD = 1024**2
MAX_HEADS = 1024
MAX_HEAD_SIZE = 256
MAX_VOCABULARY = 4 * 1024**2
MAX_CONTEXT = 16 * 1024**2
BLOCK = 32  # inputs of a linear are computed in blocks of so many
# Attention takes, and turns, so many elements of a head at a time, on one target or another.
_HEAD_STEP = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeFacts:
    """How positions turn queries and keys."""

    base: float
    size: int  # leading elements of a head
    scale: float = 1.0  # positions are divided by it
    factors: tuple[float, ...] = ()  # size / 2
    magnitude: float = 1.0  # of cosines and sines


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Checked: whatever is an Architecture can be computed."""

    family: Family
    layers: int
    hidden_size: int
    feed_forward_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary_size: int
    context_length: int
    epsilon: float
    rope: RopeFacts
    local_rope: RopeFacts | None = None  # of layers with a window; None: as the others
    windows: tuple[int, ...]  # per layer: tokens seen, the asking one counted; 0: all
    attention_scale: float
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0

    @property
    def query_size(self) -> int:
        return self.heads * self.head_size

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_size

    @property
    def embedding_scale(self) -> float:
        return math.sqrt(self.hidden_size) if self.family.scaled_embedding else 1.0

    def __post_init__(self) -> None:
        bounded("layers", self.layers, MAX_LAYERS)
        bounded("hidden size", self.hidden_size, MAX_HIDDEN, BLOCK)
        bounded("feed forward size", self.feed_forward_size, MAX_FEED_FORWARD, BLOCK)
        bounded("heads", self.heads, MAX_HEADS)
        bounded("key-value heads", self.kv_heads, self.heads)
        bounded("head size", self.head_size, MAX_HEAD_SIZE, _HEAD_STEP)
        bounded("heads times head size", self.query_size, MAX_HIDDEN, BLOCK)
        bounded("vocabulary size", self.vocabulary_size, MAX_VOCABULARY)
        bounded("context length", self.context_length, MAX_CONTEXT)
        if self.heads % self.kv_heads:
            raise ModelFileError(
                "key-value heads", f"{self.kv_heads} of {self.heads} heads", "a divisor of it"
            )
        if not 0 < self.epsilon < 1:
            raise ModelFileError("epsilon of norms", f"{self.epsilon:g}", "between 0 and 1")
        for rope in (self.rope, self.local_rope or self.rope):
            self._check_rope(rope)
        for window in self.windows:
            bounded("window", window + 1, MAX_CONTEXT + 1)
        for name in ("attention_scale", "attention_softcap", "logit_softcap"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ModelFileError(name.replace("_", " "), f"{value:g}", "0 or more, and finite")

    def _check_rope(self, rope: RopeFacts) -> None:
        bounded("rotated size", rope.size, self.head_size, _HEAD_STEP)
        for name in ("base", "scale", "magnitude"):
            value = getattr(rope, name)
            if not 0 < value < math.inf:
                raise ModelFileError(f"{name} of rotation", f"{value:g}", "above 0, and finite")
        if rope.factors and len(rope.factors) != rope.size // 2:
            raise ModelFileError(
                "factors of rotation", f"{len(rope.factors)} of them", str(rope.size // 2)
            )
        if not all(0 < factor < math.inf for factor in rope.factors):
            raise ModelFileError("factors of rotation", "not all above 0 and finite", "above 0")


def bounded(place: str, value: int, most: int, step: int = 1) -> int:
    """The value, if it is one of 1 to `most`."""
    if not 1 <= value <= most or value % step:
        allowed = f"1 to {most}" if step == 1 else f"multiples of {step} up to {most}"
        raise ModelFileError(place, str(value), allowed)
    return value
