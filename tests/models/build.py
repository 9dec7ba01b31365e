"""Puts ONNX graphs together in few words."""

from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper

Dims = Sequence[int | str]

OPSET, IR_VERSION = 17, 9  # what ONNX Runtime 1.32 and older ones read


def tensor(name: str, kind: int, dims: Dims) -> onnx.ValueInfoProto:
    """An input or output; a text as dimension is free."""
    return helper.make_tensor_value_info(name, kind, list(dims))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
) -> bytes:
    """The bytes of a model."""
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializer=list(initializers))
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    return made.SerializeToString()


ONNX_KINDS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
    "BF16": TensorProto.BFLOAT16,
}
