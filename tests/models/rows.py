"""Models over rows, or over what only looks like rows: for what may share a run."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.models.build import model, tensor

_F, _I = TensorProto.FLOAT, TensorProto.INT64


def running_sum() -> bytes:
    """Y = sum of this row and all before it."""
    axis = numpy_helper.from_array(np.array(0, np.int64), "axis")
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    return model([node], [tensor("x", _F, ("n", 2))], [tensor("y", _F, ("n", 2))], [axis])


def normalised(axis: int) -> bytes:
    """Y = x without mean, over standard deviation, along an axis of [n, 4]; axis 0 makes rows depend on each other."""
    tiny = numpy_helper.from_array(np.array(1e-3, np.float32), "tiny")
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[axis], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("Mul", ["centred", "centred"], ["squared"]),
        helper.make_node("ReduceMean", ["squared"], ["variance"], axes=[axis], keepdims=1),
        helper.make_node("Add", ["variance", "tiny"], ["some"]),
        helper.make_node("Sqrt", ["some"], ["deviation"]),
        helper.make_node("Div", ["centred", "deviation"], ["y"]),
    ]
    return model(nodes, [tensor("x", _F, ("n", 4))], [tensor("y", _F, ("n", 4))], [tiny])


def sequence_softmax() -> bytes:
    """Y = softmax over x [length]: a free first dimension that counts steps, not rows."""
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    return model([node], [tensor("x", _F, ("length",))], [tensor("y", _F, ("length",))])


def total() -> bytes:
    """Y = sum over all rows, declared to have a row for each."""
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=1)
    return model([node], [tensor("x", _F, ("n",))], [tensor("y", _F, ("n",))])


def crowded(limit: int) -> bytes:
    """Y = x, but x + 1 in runs of more than `limit` rows."""
    most = numpy_helper.from_array(np.array([limit], np.int64), "most")
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("Greater", ["rows", "most"], ["many"]),
        helper.make_node("Cast", ["many"], ["more"], to=_F),
        helper.make_node("Add", ["x", "more"], ["y"]),
    ]
    return model(nodes, [tensor("x", _F, ("n",))], [tensor("y", _F, ("n",))], [most])


def random() -> bytes:
    """Y = x + noise, another in each run."""
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"]),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]
    return model(nodes, [tensor("x", _F, ("n", 2))], [tensor("y", _F, ("n", 2))])


def logarithm() -> bytes:
    """Y = log(x) - log of the mean over all rows: not a number for negative ones, and rows depend on each other."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Log", ["x"], ["own"]),
        helper.make_node("Log", ["mean"], ["all"]),
        helper.make_node("Sub", ["own", "all"], ["y"]),
    ]
    return model(nodes, [tensor("x", _F, ("n", 2))], [tensor("y", _F, ("n", 2))])


def embedding(*, masked: bool) -> bytes:
    """Y = mean of table[ids] over each row's tokens, the masked ones left out, or (a fault) not.

    Also `tokens`, a vector for each token.
    """
    table = np.random.default_rng(5).normal(size=(100, 3)).astype(np.float32)
    constants = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([1], np.int64), "one"),
        numpy_helper.from_array(np.array([2], np.int64), "two"),
    ]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["tokens"])]
    if masked:
        nodes += [
            helper.make_node("Cast", ["mask"], ["kept"], to=_F),
            helper.make_node("Unsqueeze", ["kept", "two"], ["kept3"]),
            helper.make_node("Mul", ["tokens", "kept3"], ["counted"]),
            helper.make_node("ReduceSum", ["counted", "one"], ["sum"], keepdims=0),
            helper.make_node("ReduceSum", ["kept", "one"], ["count"], keepdims=1),
            helper.make_node("Div", ["sum", "count"], ["y"]),
        ]
    else:
        nodes += [
            helper.make_node("ReduceMean", ["tokens"], ["y"], axes=[1], keepdims=0),
            helper.make_node("Identity", ["mask"], ["unused"]),
        ]
    shape = ("n", "length")
    return model(
        nodes,
        [tensor("ids", _I, shape), tensor("mask", _I, shape)],
        [tensor("y", _F, ("n", 3)), tensor("tokens", _F, ("n", "length", 3))],
        constants,
    )
