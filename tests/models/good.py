"""Models that work."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.models.build import ONNX_KINDS, Dims, model, tensor


def identity(datatype: str, dims: Dims = ("n",)) -> bytes:
    """Y = x in any datatype."""
    kind = ONNX_KINDS[datatype]
    node = helper.make_node("Identity", ["x"], ["y"])
    return model([node], [tensor("x", kind, dims)], [tensor("y", kind, dims)])


def add(dims: Dims = ("n", 2)) -> bytes:
    """Total = a + b."""
    node = helper.make_node("Add", ["a", "b"], ["total"])
    kind = TensorProto.FLOAT
    return model(
        [node],
        [tensor("a", kind, dims), tensor("b", kind, dims)],
        [tensor("total", kind, dims)],
    )


def affine(factor: float, width: int = 4) -> bytes:
    """Y = factor · x, z = -x: two outputs, rows free."""
    weight = numpy_helper.from_array(np.array(factor, np.float32), "factor")
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["y"]),
        helper.make_node("Neg", ["x"], ["z"]),
    ]
    kind = TensorProto.FLOAT
    return model(
        nodes,
        [tensor("x", kind, ("n", width))],
        [tensor("y", kind, ("n", width)), tensor("z", kind, ("n", width))],
        [weight],
    )


def gather() -> bytes:
    """Y = table[x]: refuses indices beyond 3, so that a test can spoil a batch."""
    table = numpy_helper.from_array(np.arange(4, dtype=np.float32) * 10, "table")
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    return model(
        [node],
        [tensor("x", TensorProto.INT64, ("n",))],
        [tensor("y", TensorProto.FLOAT, ("n",))],
        [table],
    )


def centred() -> bytes:
    """Y = x - mean over all rows: a batch of two is not two singles."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    kind = TensorProto.FLOAT
    return model(nodes, [tensor("x", kind, ("n", 2))], [tensor("y", kind, ("n", 2))])


def divided(operator: str) -> bytes:
    """Y = a / b or a mod b in whole numbers: refuses zeros."""
    kind = TensorProto.INT64
    node = helper.make_node(operator, ["a", "b"], ["y"])
    return model(
        [node],
        [tensor("a", kind, ("n",)), tensor("b", kind, ("n",))],
        [tensor("y", kind, ("n",))],
    )


def reciprocal() -> bytes:
    """Y = 1 / x: gives infinity for 0."""
    kind = TensorProto.FLOAT
    node = helper.make_node("Reciprocal", ["x"], ["y"])
    return model([node], [tensor("x", kind, ("n",))], [tensor("y", kind, ("n",))])


def counting() -> bytes:
    """Y = x after `rounds[0]` rounds of a loop that adds nothing: takes as long as the caller says."""
    return looping(endless=False)


def looping(*, endless: bool) -> bytes:
    """A Loop over the input: `rounds` times, or without end if endless."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_in"], ["go_out"]),
            helper.make_node("Identity", ["value_in"], ["value_out"]),
        ],
        "body",
        [
            tensor("round", TensorProto.INT64, ()),
            tensor("go_in", TensorProto.BOOL, ()),
            tensor("value_in", TensorProto.FLOAT, ("n",)),
        ],
        [tensor("go_out", TensorProto.BOOL, ()), tensor("value_out", TensorProto.FLOAT, ("n",))],
    )
    go = numpy_helper.from_array(np.array(True), "go")
    nodes = []
    inputs = [tensor("x", TensorProto.FLOAT, ("n",))]
    if endless:
        trips = ""
    else:
        trips = "trips"
        shape = numpy_helper.from_array(np.array([], np.int64), "scalar")
        nodes.append(helper.make_node("Reshape", ["rounds", "scalar"], ["trips"]))
        inputs.append(tensor("rounds", TensorProto.INT64, (1,)))
    nodes.append(helper.make_node("Loop", [trips, "go", "x"], ["y"], body=body))
    initializers = [go] if endless else [go, shape]
    return model(nodes, inputs, [tensor("y", TensorProto.FLOAT, ("n",))], initializers)


def running_sum(width: int = 2) -> bytes:
    """Total = x + state, and the state after it is the total: a model for sequences, rows free."""
    nodes = [
        helper.make_node("Add", ["x", "state"], ["total"]),
        helper.make_node("Identity", ["total"], ["state_after"]),
    ]
    kind, dims = TensorProto.FLOAT, ("n", width)
    return model(
        nodes,
        [tensor("x", kind, dims), tensor("state", kind, dims)],
        [tensor("total", kind, dims), tensor("state_after", kind, dims)],
    )
