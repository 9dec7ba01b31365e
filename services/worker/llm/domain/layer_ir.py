"""The layers of a language model, whatever file they come from and whatever graph they become.

One form for all families: RMS norm, attention, RMS norm, gated feed forward, with the parts that only some have left
out (None, 0). Heads are rotated in halves (element i with element i + rope_size / 2); where a file has them in pairs
they are put in this order when it is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.domain.quantised import QuantisedMatrix

Array = np.ndarray[Any, np.dtype[Any]]
Weights = QuantisedMatrix | Array  # an array is float32 [N, K]: outputs, inputs


class Activation(Enum):
    """What the gate goes through; values are those of the operator's attribute."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class Linear:
    """From K inputs to N outputs."""

    weights: Weights
    bias: Array | None = None  # float32 [N]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """How a layer turns queries and keys by their positions."""

    base: float
    size: int  # leading elements of each head that are turned
    scale: float = 1.0  # positions are divided by it
    factors: tuple[float, ...] = ()  # size / 2: each frequency is divided by its own; empty: by 1
    magnitude: float = 1.0  # of cosines and sines

    def tables(self, positions: int) -> tuple[Array, Array]:
        """Cosines and sines of positions from 0: float32 [positions, size / 2] each."""
        frequencies = self.base ** (-np.arange(0, self.size, 2, dtype=np.float64) / self.size)
        if self.factors:
            frequencies /= np.asarray(self.factors, np.float64)
        angles = np.arange(positions)[:, None] / self.scale * frequencies
        cosines, sines = np.cos(angles), np.sin(angles)
        return (
            (cosines * self.magnitude).astype(np.float32),
            (sines * self.magnitude).astype(np.float32),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer's weights. Norms are float32 factors, [hidden_size] if nothing else is said.

    h += post_attention_norm(output(attention(query_norm(q), key_norm(k), v))) of attention_norm(h);
    h += post_feed_forward_norm(down(activation(gate) * up)) of feed_forward_norm(h).
    """

    attention_norm: Array
    query: Linear  # N: heads * head_size
    key: Linear  # N: kv_heads * head_size
    value: Linear
    output: Linear  # K: heads * head_size
    feed_forward_norm: Array
    gate: Linear
    up: Linear
    down: Linear
    query_norm: Array | None = None  # [head_size]; of each head, before it is turned
    key_norm: Array | None = None
    post_attention_norm: Array | None = None
    post_feed_forward_norm: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """Everything of a model but its weights."""

    shape: ModelShape
    ropes: tuple[Rope, ...]
    layer_ropes: tuple[int, ...]  # per layer: which of `ropes`
    windows: tuple[int, ...]  # per layer: tokens seen, the asking one counted; 0: all
    activation: Activation = Activation.SILU
    attention_scale: float  # queries times keys are multiplied by it
    attention_softcap: float = 0.0  # c: c * tanh(x / c); 0: none
    logit_softcap: float = 0.0  # the same
    # Rows of the embedding are multiplied by it; not so the head if it is the same matrix.
    embedding_scale: float = 1.0


def joined(linears: Sequence[Linear]) -> Linear:
    """One linear whose outputs are those of all, in their order. Exact: 4 bits beside 8 become 8."""
    biases: Array | None = None
    if any(linear.bias is not None for linear in linears):
        biases = np.concatenate(
            [
                np.zeros(rows(linear.weights), np.float32) if linear.bias is None else linear.bias
                for linear in linears
            ]
        )
    return Linear(_joined_weights([linear.weights for linear in linears]), biases)


def _joined_weights(parts: Sequence[Weights]) -> Weights:
    quantised = [part for part in parts if isinstance(part, QuantisedMatrix)]
    if len(quantised) != len(parts):
        return np.concatenate([as_floats(part) for part in parts])
    return QuantisedMatrix(
        q=np.concatenate([part.q for part in quantised]),
        scale=np.concatenate([part.scale for part in quantised]),
        minimum=np.concatenate([part.minimum for part in quantised]),
        bits=max(part.bits for part in quantised),
    )


def rows(weights: Weights) -> int:
    """N: how many outputs."""
    return weights.rows if isinstance(weights, QuantisedMatrix) else int(weights.shape[0])


def columns(weights: Weights) -> int:
    """K: how many inputs."""
    return weights.columns if isinstance(weights, QuantisedMatrix) else int(weights.shape[1])


def as_floats(weights: Weights) -> Array:
    """float32 [N, K]."""
    return weights.dequantised() if isinstance(weights, QuantisedMatrix) else weights
