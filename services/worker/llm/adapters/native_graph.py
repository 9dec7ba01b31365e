"""The graph for our own operators on CPUs: flat tokens, a paged cache, weights as the file has them."""

from typing import Any

import numpy as np

from services.worker.llm.adapters import decoder_graph
from services.worker.llm.adapters.decoder_graph import DecoderGraph
from services.worker.llm.adapters.graph_names import (
    BLOCK_SIZE,
    BLOCKS,
    CACHE,
    IDS,
    OWN_DOMAIN,
    PAST,
    ROWS,
    STARTS,
)
from services.worker.llm.adapters.graph_writer import GraphWriter
from services.worker.llm.adapters.panels import pack
from services.worker.llm.domain.layer_ir import (
    Activation,
    Layer,
    Linear,
    ModelPlan,
    Weights,
    rows,
)
from services.worker.llm.domain.quantised import QuantisedMatrix
from services.worker.llm.ports.model_weights import ModelWeights


def write(writer: GraphWriter, weights: ModelWeights, cache_dtype: Any = np.float16) -> None:
    """All of it. Raises LoadError for weights that can't be computed with."""
    dialect = NativeDialect(writer, weights.plan, cache_dtype)
    DecoderGraph(writer, weights, dialect).write()
    writer.save()


class NativeDialect:
    """Dialect of the operators in `native/`."""

    dtype = np.float32

    def __init__(self, writer: GraphWriter, plan: ModelPlan, cache_dtype: Any) -> None:
        """Declare the inputs."""
        self._writer = writer
        self._plan = plan
        self._tables = decoder_graph.rope_tables(writer, plan)
        shape = plan.shape
        writer.input(IDS, np.int64, ["T"])
        for name, dims in ((STARTS, ["B1"]), (PAST, ["B"]), (BLOCKS, ["B", "M"])):
            writer.input(name, np.int32, dims)
        writer.input(ROWS, np.int64, ["R"])
        block = BLOCK_SIZE * shape.head_size
        writer.input(CACHE, cache_dtype, [shape.layers, 2, "blocks", shape.kv_heads, block])

    def linear(self, name: str, x: str, linear: Linear) -> str:
        if not isinstance(linear.weights, QuantisedMatrix):
            return decoder_graph.multiplied(self._writer, name, x, linear)
        panels, scales = pack(linear.weights)
        inputs = [
            x,
            self._writer.weight(name, panels),
            self._writer.weight(f"{name}.scales", scales),
        ]
        if linear.bias is not None:
            inputs.append(self._writer.weight(f"{name}.bias", linear.bias))
        return self._writer.node(
            "QLinear",
            inputs,
            domain=OWN_DOMAIN,
            columns=rows(linear.weights),
            bits=linear.weights.bits,
        )

    def attention(self, index: int, qkv: str, layer: Layer) -> str:
        shape = self._plan.shape
        tables = self._tables[self._plan.layer_ropes[index]]
        inputs = [qkv, CACHE, STARTS, PAST, BLOCKS, *tables]
        if layer.query_norm is not None and layer.key_norm is not None:
            inputs += [
                self._writer.weight(f"layer{index}.query_norm", layer.query_norm),
                self._writer.weight(f"layer{index}.key_norm", layer.key_norm),
            ]
        return self._writer.node(
            "PagedAttention",
            inputs,
            domain=OWN_DOMAIN,
            num_heads=shape.heads,
            kv_num_heads=shape.kv_heads,
            layer=index,
            window=self._plan.windows[index],
            softcap=self._plan.attention_softcap,
            scale=self._plan.attention_scale,
            epsilon=shape.rms_epsilon,
        )

    def gated(self, gate_up: str, activation: Activation) -> str:
        return self._writer.node(
            "SwiGLU", [gate_up], domain=OWN_DOMAIN, activation=activation.value
        )

    def embedding(self, ids: str, weights: Weights) -> str:
        return decoder_graph.gathered(self._writer, ids, weights)

    def wanted(self, x: str) -> str:
        return self._writer.node("Gather", [x, ROWS], axis=0)
