"""A model of which little is computed and much is held: weights, and tensors between its nodes."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.models.build import model, tensor

WIDTH = 16
_HIDDEN = 1024  # floats that each step of each row takes between two nodes
_TABLE = 1 << 18


def steps() -> bytes:
    """Input x FP32 [n, steps, 16], output y FP32 [n, 1]; 16 MiB of weights, 8 KiB or more a step while it runs."""
    random = np.random.default_rng(3)

    def weight(name: str, rows: int, columns: int) -> TensorProto:
        values = random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)
        return numpy_helper.from_array(values, name)

    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["hidden"]),
        helper.make_node("Sigmoid", ["hidden"], ["active"]),
        helper.make_node("MatMul", ["active", "down"], ["steps"]),
        helper.make_node("ReduceMean", ["steps"], ["pooled"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["pooled", "table"], ["scores"]),
        helper.make_node("ReduceMax", ["scores"], ["y"], axes=[1], keepdims=1),
    ]
    kind = TensorProto.FLOAT
    return model(
        nodes,
        [tensor("x", kind, ("n", "steps", WIDTH))],
        [tensor("y", kind, ("n", 1))],
        [
            weight("up", WIDTH, _HIDDEN),
            weight("down", _HIDDEN, WIDTH),
            weight("table", WIDTH, _TABLE),
        ],
    )
