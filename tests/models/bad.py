"""Models and files that must not take a worker down."""

import pickle

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.models.build import IR_VERSION, OPSET, model, tensor
from tests.models.good import identity, looping


def endless() -> bytes:
    """Loads, then its example never ends."""
    return looping(endless=True)


def hungry() -> bytes:
    """Loads, then its example wants a terabyte."""
    size = numpy_helper.from_array(np.array([1 << 38], np.int64), "size")
    nodes = [
        helper.make_node("Expand", ["x", "size"], ["big"]),
        helper.make_node("ReduceSum", ["big"], ["y"], keepdims=1),
    ]
    kind = TensorProto.FLOAT
    return model(nodes, [tensor("x", kind, (1,))], [tensor("y", kind, (1,))], [size])


def pickled() -> bytes:
    """A pickle under a model's name."""
    return pickle.dumps({"weights": [1, 2, 3]})


def corrupt() -> bytes:
    """A model whose second half is missing."""
    whole = identity("FP32", ("n", 64))
    return whole[: len(whole) // 2]


def external(location: str) -> bytes:
    """Y = x + w, with w in a file of that name, 2 floats long."""
    weight = TensorProto(
        name="w",
        data_type=TensorProto.FLOAT,
        dims=[2],
        data_location=TensorProto.EXTERNAL,
        external_data=[onnx.StringStringEntryProto(key="location", value=location)],
    )
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "graph",
        [tensor("x", kind, ("n", 2))],
        [tensor("y", kind, ("n", 2))],
        initializer=[weight],
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    return made.SerializeToString()
