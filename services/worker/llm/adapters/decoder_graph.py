"""A language model's layers as a graph: what is the same whatever computes it."""

from typing import Any, Protocol

import numpy as np

from services.worker.llm.adapters.graph_names import IDS, LOGITS, RUNTIME_DOMAIN
from services.worker.llm.adapters.graph_writer import GraphWriter
from services.worker.llm.domain.layer_ir import (
    Activation,
    Array,
    Layer,
    Linear,
    ModelPlan,
    Weights,
    joined,
)
from services.worker.llm.domain.quantised import BLOCK, QuantisedMatrix
from services.worker.llm.ports.model_weights import ModelWeights


class Dialect(Protocol):
    """How one target says what differs: linears, attention, the gate, and the inputs that attention needs."""

    @property
    def dtype(self) -> Any:
        """Of the values between nodes."""
        ...

    def linear(self, name: str, x: str, linear: Linear) -> str:
        """`x` times the weights."""
        ...

    def attention(self, index: int, qkv: str, layer: Layer) -> str:
        """Queries, keys and values joined; what the heads say, joined."""
        ...

    def gated(self, gate_up: str, activation: Activation) -> str:
        """Activation of the first half times the second."""
        ...

    def embedding(self, ids: str, weights: Weights) -> str:
        """Rows of the embedding."""
        ...

    def wanted(self, x: str) -> str:
        """`rows` of all tokens."""
        ...


class DecoderGraph:
    """Writes one model in one dialect; its inputs are the dialect's, its output is `logits`."""

    def __init__(self, writer: GraphWriter, weights: ModelWeights, dialect: Dialect) -> None:
        self._writer = writer
        self._weights = weights
        self._plan = weights.plan
        self._dialect = dialect

    def write(self) -> None:
        """All nodes and weights, layer by layer. Raises LoadError for weights that can't be computed with."""
        h, last = self._embedded(), ""
        for index in range(self._plan.shape.layers):
            h, last = self._layer(index, h, last)
        x, _ = self._normed(h, last, "final_norm", self._weights.final_norm())
        self._logits(x)

    def _embedded(self) -> str:
        h = self._dialect.embedding(IDS, self._weights.embedding())
        scale = self._plan.embedding_scale
        if scale == 1.0:
            return h
        factor = self._writer.weight("embedding_scale", np.array(scale, self._dialect.dtype))
        return self._writer.node("Mul", [h, factor])

    def _layer(self, index: int, h: str, last: str) -> tuple[str, str]:
        """The hidden state, and what is to be added to it: the next norm does both at once."""
        layer, name = self._weights.layer(index), f"layer{index}"
        x, h = self._normed(h, last, f"{name}.attention_norm", layer.attention_norm)
        fused = joined([layer.query, layer.key, layer.value])
        qkv = self._dialect.linear(f"{name}.qkv", x, fused)
        heads = self._dialect.attention(index, qkv, layer)
        if index == self._plan.shape.layers - 1:
            # From here on tokens don't look at each other: only those go on whose logits are wanted.
            heads, h = self._dialect.wanted(heads), self._dialect.wanted(h)
        x = self._dialect.linear(f"{name}.output", heads, layer.output)
        x = self._post(x, f"{name}.post_attention_norm", layer.post_attention_norm)
        x, h = self._normed(h, x, f"{name}.feed_forward_norm", layer.feed_forward_norm)
        x = self._dialect.linear(f"{name}.gate_up", x, joined([layer.gate, layer.up]))
        x = self._dialect.gated(x, self._plan.activation)
        x = self._dialect.linear(f"{name}.down", x, layer.down)
        return h, self._post(x, f"{name}.post_feed_forward_norm", layer.post_feed_forward_norm)

    def _post(self, x: str, name: str, factors: Array | None) -> str:
        return x if factors is None else self._normed(x, "", name, factors)[0]

    def _normed(self, h: str, added: str, name: str, factors: Array) -> tuple[str, str]:
        """Norm of `h + added`, and that sum."""
        factors_name = self._writer.weight(name, factors.astype(self._dialect.dtype))
        epsilon = self._plan.shape.rms_epsilon
        if added:
            x, _, _, total = self._writer.nodes(
                "SkipSimplifiedLayerNormalization",
                [h, added, factors_name],
                ["", None, None, ""],
                domain=RUNTIME_DOMAIN,
                epsilon=epsilon,
            )
            return x, total
        kind = "SimplifiedLayerNormalization"
        return self._writer.node(kind, [h, factors_name], epsilon=epsilon, axis=-1), h

    def _logits(self, x: str) -> None:
        head = self._weights.head() or Linear(self._weights.embedding())
        logits = self._dialect.linear("head", x, head)
        if self._dialect.dtype != np.float32:
            logits = self._writer.node("Cast", [logits], to=1)  # FLOAT
        if cap := self._plan.logit_softcap:
            bound = self._writer.weight("logit_softcap", np.array(cap, np.float32))
            tanh = self._writer.node("Tanh", [self._writer.node("Div", [logits, bound])])
            logits = self._writer.node("Mul", [tanh, bound])
        self._writer.rename(logits, LOGITS)
        self._writer.output(LOGITS, np.float32, ["R", self._plan.shape.vocabulary_size])


def is_symmetric(matrix: QuantisedMatrix) -> bool:
    """Whether weights are `scale * (q - half)`: what the runtime computes with unless told otherwise."""
    return bool(np.all(matrix.minimum == -(2.0 ** (matrix.bits - 1)) * matrix.scale))


def packed(matrix: QuantisedMatrix) -> Array:
    """uint8 [N, K / 32, bytes]: of 4 bits two in a byte, the first one low."""
    if matrix.bits == 8:
        return matrix.q
    low, high = matrix.q[..., 0::2], matrix.q[..., 1::2]
    packed_q: Array = low | (high << 4)
    return packed_q


def window_of(plan: ModelPlan, index: int) -> int:
    """A layer's window as the runtime says it: the asking token counts; -1: all."""
    return plan.windows[index] or -1


def rope_tables(
    writer: GraphWriter, plan: ModelPlan, dtype: Any = np.float32
) -> list[tuple[str, str]]:
    """Names of cosines and sines of each kind of layer."""
    names = []
    for kind, rope in enumerate(plan.ropes):
        cosines, sines = rope.tables(plan.shape.context_length)
        names.append(
            (
                writer.weight(f"cosines{kind}", cosines.astype(dtype)),
                writer.weight(f"sines{kind}", sines.astype(dtype)),
            )
        )
    return names


def gathered(writer: GraphWriter, ids: str, weights: Weights) -> str:
    """Rows of the embedding in float32: of its own integers where they are enough, else of 16-bit floats."""
    if isinstance(weights, QuantisedMatrix) and is_symmetric(weights):
        inputs = [
            writer.weight("embedding", packed(weights).reshape(weights.rows, -1)),
            ids,
            writer.weight("embedding.scales", weights.scale),
        ]
        return writer.node(
            "GatherBlockQuantized",
            inputs,
            domain=RUNTIME_DOMAIN,
            bits=weights.bits,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )
    if not isinstance(weights, QuantisedMatrix):
        return writer.node("Gather", [writer.weight("embedding", weights), ids], axis=0)
    table = writer.weight("embedding", weights.dequantised().astype(np.float16))
    return writer.node("Cast", [writer.node("Gather", [table, ids], axis=0)], to=1)  # FLOAT


def multiplied(
    writer: GraphWriter, name: str, x: str, linear: Linear, dtype: Any = np.float32
) -> str:
    """A linear of float weights."""
    if isinstance(linear.weights, QuantisedMatrix):
        raise TypeError(f"{name} is quantised")
    y = writer.node("MatMul", [x, writer.weight(name, linear.weights.T.astype(dtype))])
    if linear.bias is None:
        return y
    return writer.node("Add", [y, writer.weight(f"{name}.bias", linear.bias.astype(dtype))])
