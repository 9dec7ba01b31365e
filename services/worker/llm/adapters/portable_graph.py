"""The graph for ONNX Runtime's own operators on CPUs: each request has a slot of the cache, tokens lie [B, S]."""

from typing import Any

import numpy as np

from services.worker.llm.adapters import decoder_graph
from services.worker.llm.adapters.decoder_graph import DecoderGraph, is_symmetric, packed
from services.worker.llm.adapters.graph_names import (
    IDS,
    LAST_PLACES,
    LENGTHS,
    MOST_TOKENS,
    ROWS,
    RUNTIME_DOMAIN,
    cache_names,
)
from services.worker.llm.adapters.graph_writer import GraphWriter
from services.worker.llm.domain.layer_ir import (
    Activation,
    Array,
    Layer,
    Linear,
    ModelPlan,
    Weights,
    rows,
)
from services.worker.llm.domain.quantised import BLOCK, QuantisedMatrix
from services.worker.llm.ports.model_weights import ModelWeights

_INT8 = 4  # accuracy_level: activations become 8 bits, each block of a row by itself


def write(writer: GraphWriter, weights: ModelWeights) -> None:
    """All of it. Raises LoadError for weights that can't be computed with."""
    dialect = PortableDialect(writer, weights.plan)
    DecoderGraph(writer, weights, dialect).write()
    dialect.declare_written_caches()
    writer.save()


class PortableDialect:
    """Dialect of GroupQueryAttention and MatMulNBits."""

    dtype: Any = np.float32

    def __init__(self, writer: GraphWriter, plan: ModelPlan) -> None:
        """Declare the inputs."""
        self._writer = writer
        self._plan = plan
        self._tables = decoder_graph.rope_tables(writer, plan)
        writer.input(IDS, np.int64, ["B", "S"])
        writer.input(LAST_PLACES, np.int32, ["B"])
        writer.input(MOST_TOKENS, np.int32, [])
        writer.input(LENGTHS, np.int32, ["B"])
        writer.input(ROWS, np.int64, ["R"])
        self._cache_dims: list[int | str] = ["B", plan.shape.kv_heads, "C", plan.shape.head_size]
        for layer in range(plan.shape.layers):
            for past, _ in cache_names(layer):
                writer.input(past, np.float32, self._cache_dims)

    def declare_written_caches(self) -> None:
        """They are outputs, too, bound to the memory of the inputs."""
        for layer in range(self._plan.shape.layers):
            for _, written in cache_names(layer):
                self._writer.output(written, np.float32, self._cache_dims)

    def linear(self, name: str, x: str, linear: Linear) -> str:
        if not isinstance(linear.weights, QuantisedMatrix):
            return decoder_graph.multiplied(self._writer, name, x, linear)
        inputs, bits = self._integers(name, linear.weights)
        inputs = [x, *inputs]
        if linear.bias is not None:
            missing = 5 - len(inputs)  # zero points, group indices
            inputs += [*[""] * missing, self._writer.weight(f"{name}.bias", linear.bias)]
        return self._writer.node(
            "MatMulNBits",
            inputs,
            domain=RUNTIME_DOMAIN,
            N=rows(linear.weights),
            K=linear.weights.columns,
            bits=bits,
            block_size=BLOCK,
            accuracy_level=_INT8,
        )

    def _integers(self, name: str, matrix: QuantisedMatrix) -> tuple[list[str], int]:
        if is_symmetric(matrix):
            return [
                self._writer.weight(name, packed(matrix)),
                self._writer.weight(f"{name}.scales", matrix.scale),
            ], matrix.bits
        q, scales, zeros = eight_bits(matrix)
        return [
            self._writer.weight(name, q),
            self._writer.weight(f"{name}.scales", scales),
            self._writer.weight(f"{name}.zeros", zeros),
        ], 8

    def attention(self, index: int, qkv: str, layer: Layer) -> str:
        shape, writer = self._plan.shape, self._writer
        query, key, value = qkv, "", ""
        if layer.query_norm is not None and layer.key_norm is not None:
            widths = [shape.heads, shape.kv_heads, shape.kv_heads]
            sizes = np.array([n * shape.head_size for n in widths], np.int64)
            parts = [qkv, writer.weight("head_widths", sizes)]
            query, key, value = writer.nodes("Split", parts, ["", "", ""], axis=-1)
            query = self._head_norm(f"layer{index}.query_norm", query, layer.query_norm)
            key = self._head_norm(f"layer{index}.key_norm", key, layer.key_norm)
        (past_keys, keys), (past_values, values) = cache_names(index)
        caches = [past_keys, past_values, LAST_PLACES, MOST_TOKENS]
        tables = self._tables[self._plan.layer_ropes[index]]
        heads, _, _ = writer.nodes(
            "GroupQueryAttention",
            [query, key, value, *caches, *tables, *[""] * 7, LENGTHS],
            ["", keys, values],
            domain=RUNTIME_DOMAIN,
            num_heads=shape.heads,
            kv_num_heads=shape.kv_heads,
            do_rotary=1,
            local_window_size=decoder_graph.window_of(self._plan, index),
            softcap=self._plan.attention_softcap,
            scale=self._plan.attention_scale,
        )
        return heads

    def _head_norm(self, name: str, x: str, factors: Array) -> str:
        """Norm of each head by itself."""
        writer, size = self._writer, self._plan.shape.head_size
        split = writer.weight("by_heads", np.array([0, 0, -1, size], np.int64))
        x = writer.node("Reshape", [x, split])
        epsilon = self._plan.shape.rms_epsilon
        kind = "SimplifiedLayerNormalization"
        x = writer.node(kind, [x, writer.weight(name, factors)], epsilon=epsilon, axis=-1)
        return writer.node(
            "Reshape", [x, writer.weight("heads_joined", np.array([0, 0, -1], np.int64))]
        )

    def gated(self, gate_up: str, activation: Activation) -> str:
        return gated(self._writer, gate_up, activation)

    def embedding(self, ids: str, weights: Weights) -> str:
        return decoder_graph.gathered(self._writer, ids, weights)

    def wanted(self, x: str) -> str:
        flat = self._writer.node("Flatten", [x], axis=2)
        return self._writer.node("Gather", [flat, ROWS], axis=0)


def gated(writer: GraphWriter, gate_up: str, activation: Activation) -> str:
    """Activation of the first half times the second, of the runtime's operators."""
    gate, up = writer.nodes("Split", [gate_up], ["", ""], axis=-1, num_outputs=2)
    if activation is Activation.SILU:
        x = writer.node("QuickGelu", [gate], domain=RUNTIME_DOMAIN, alpha=1.0)
    else:
        x = writer.node("Gelu", [gate], approximate="tanh")
    return writer.node("Mul", [x, up])


def eight_bits(matrix: QuantisedMatrix) -> tuple[Array, Array, Array]:
    """q, scales and zero points of 8 bits, where the runtime has none that lie between integers.

    A zero point rounded to 4 bits would be wrong by up to half a step of 4 bits; of 8 bits it is by a 34th of that.
    """
    # 4 and 5 bits may lie in 8: beside finer types, or for want of a form of their own.
    largest = matrix.q.max(axis=-1)
    levels = np.where(largest <= 15, 15, np.where(largest <= 31, 31, 255))
    highest = matrix.minimum + matrix.scale * levels
    low = np.minimum(np.minimum(matrix.minimum, highest), 0.0)
    high = np.maximum(np.maximum(matrix.minimum, highest), 0.0)
    scales = ((high - low) / 255).astype(np.float32)
    safe = np.where(scales > 0, scales, np.float32(1))
    zeros = np.clip(np.rint(-low / safe), 0, 255)
    steps = matrix.q * (matrix.scale / safe)[..., None] + (matrix.minimum / safe + zeros)[..., None]
    return np.clip(np.rint(steps), 0, 255).astype(np.uint8), scales, zeros.astype(np.uint8)
