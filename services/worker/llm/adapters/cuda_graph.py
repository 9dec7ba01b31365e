"""The graph for ONNX Runtime's operators on NVIDIA's GPUs: flat tokens, a paged cache per layer, 16-bit floats."""

from typing import Any

import numpy as np

from services.worker.llm.adapters import decoder_graph
from services.worker.llm.adapters.decoder_graph import DecoderGraph, is_symmetric, packed
from services.worker.llm.adapters.graph_names import (
    BLOCKS,
    CUDA_BLOCK_SIZE,
    IDS,
    LONGEST,
    PAST,
    ROWS,
    RUNTIME_DOMAIN,
    STARTS,
    cache_names,
)
from services.worker.llm.adapters.graph_writer import GraphWriter
from services.worker.llm.adapters.portable_graph import gated
from services.worker.llm.domain.layer_ir import (
    Activation,
    Array,
    Layer,
    Linear,
    ModelPlan,
    Weights,
    as_floats,
    rows,
)
from services.worker.llm.domain.quantised import BLOCK, QuantisedMatrix
from services.worker.llm.ports.model_weights import ModelWeights

_MOST_EXACT = 2048.0  # integers up to here are exact in 16-bit floats


def write(writer: GraphWriter, weights: ModelWeights) -> None:
    """All of it. Raises LoadError for weights that can't be computed with."""
    dialect = CudaDialect(writer, weights.plan)
    DecoderGraph(writer, weights, dialect).write()
    dialect.declare_written_caches()
    writer.save()


class CudaDialect:
    """Dialect of the runtime's own PagedAttention and MatMulNBits."""

    dtype: Any = np.float16

    def __init__(self, writer: GraphWriter, plan: ModelPlan) -> None:
        """Declare the inputs."""
        self._writer = writer
        self._plan = plan
        self._tables = decoder_graph.rope_tables(writer, plan, np.float16)
        writer.input(IDS, np.int64, ["T"])
        writer.input(STARTS, np.int32, ["B1"])
        writer.input(PAST, np.int32, ["B"])
        writer.input(BLOCKS, np.int32, ["B", "M"])
        writer.input(LONGEST, np.int32, [2])
        writer.input(ROWS, np.int64, ["R"])
        shape = plan.shape
        self._cache_dims: list[int | str] = [
            "blocks",
            CUDA_BLOCK_SIZE,
            shape.kv_heads,
            shape.head_size,
        ]
        for layer in range(shape.layers):
            for past, _ in cache_names(layer):
                writer.input(past, np.float16, self._cache_dims)

    def declare_written_caches(self) -> None:
        """They are outputs, too, bound to the memory of the inputs."""
        for layer in range(self._plan.shape.layers):
            for _, written in cache_names(layer):
                self._writer.output(written, np.float16, self._cache_dims)

    def linear(self, name: str, x: str, linear: Linear) -> str:
        weights = linear.weights
        if not isinstance(weights, QuantisedMatrix):
            return decoder_graph.multiplied(self._writer, name, x, linear, np.float16)
        inputs = [x, *self._integers(name, weights)]
        if linear.bias is not None:
            missing = 5 - len(inputs)  # zero points, group indices
            bias = self._writer.weight(f"{name}.bias", linear.bias.astype(np.float16))
            inputs += [*[""] * missing, bias]
        return self._writer.node(
            "MatMulNBits",
            inputs,
            domain=RUNTIME_DOMAIN,
            N=rows(weights),
            K=weights.columns,
            bits=weights.bits,
            block_size=BLOCK,
        )

    def _integers(self, name: str, matrix: QuantisedMatrix) -> list[str]:
        writer = self._writer
        if is_symmetric(matrix):
            scales = matrix.scale.astype(np.float16)
            return [writer.weight(name, packed(matrix)), writer.weight(f"{name}.scales", scales)]
        matrix, zeros = with_zero_points(matrix)
        return [
            writer.weight(name, packed(matrix)),
            writer.weight(f"{name}.scales", matrix.scale.astype(np.float16)),
            writer.weight(f"{name}.zeros", zeros.astype(np.float16)),
        ]

    def attention(self, index: int, qkv: str, layer: Layer) -> str:
        shape = self._plan.shape
        (past_keys, keys), (past_values, values) = cache_names(index)
        tables = self._tables[self._plan.layer_ropes[index]]
        inputs = [qkv, "", "", past_keys, past_values, STARTS, PAST, BLOCKS, *tables, "", ""]
        norms = ["", ""]
        if layer.query_norm is not None and layer.key_norm is not None:
            norms = [
                self._writer.weight(f"layer{index}.{name}", factors.astype(np.float16))
                for name, factors in (
                    ("query_norm", layer.query_norm),
                    ("key_norm", layer.key_norm),
                )
            ]
        heads, _, _ = self._writer.nodes(
            "PagedAttention",
            [*inputs, *norms, "", "", LONGEST],
            ["", keys, values],
            domain=RUNTIME_DOMAIN,
            num_heads=shape.heads,
            kv_num_heads=shape.kv_heads,
            do_rotary=1,
            local_window_size=decoder_graph.window_of(self._plan, index),
            softcap=self._plan.attention_softcap,
            scale=self._plan.attention_scale,
            qk_norm_epsilon=shape.rms_epsilon,
        )
        return heads

    def gated(self, gate_up: str, activation: Activation) -> str:
        return gated(self._writer, gate_up, activation)

    def embedding(self, ids: str, weights: Weights) -> str:
        table = self._writer.weight("embedding", as_floats(weights).astype(np.float16))
        return self._writer.node("Gather", [table, ids], axis=0)

    def wanted(self, x: str) -> str:
        return self._writer.node("Gather", [x, ROWS], axis=0)


def with_zero_points(matrix: QuantisedMatrix) -> tuple[QuantisedMatrix, Array]:
    """The same weights as scale * (q - zero point), where zero points may lie between integers.

    A block whose minimum is so large beside its scale that they couldn't say it, is one value: the mean of its weights.
    """
    safe = np.where(matrix.scale == 0, 1, matrix.scale)
    zeros = -matrix.minimum / safe
    is_flat = (matrix.scale == 0) | (np.abs(zeros) > _MOST_EXACT)
    mean = matrix.minimum + matrix.scale * matrix.q.mean(axis=-1)
    return QuantisedMatrix(
        q=np.where(is_flat[..., None], np.uint8(1), matrix.q),
        scale=np.where(is_flat, mean, matrix.scale).astype(np.float32),
        minimum=np.where(is_flat, 0, matrix.minimum).astype(np.float32),
        bits=matrix.bits,
    ), np.where(is_flat, 0, zeros).astype(np.float32)
