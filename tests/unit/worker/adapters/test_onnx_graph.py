"""Which models take as long as their rows say."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from services.worker.adapters.onnx_graph import is_steady
from tests.models import good
from tests.models.build import model, tensor

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def grown(*, constant: bool) -> bytes:
    """Y = x repeated as often as a constant or the caller says."""
    times = numpy_helper.from_array(np.array([3], np.int64), "times")
    inputs = [tensor("x", FLOAT, ("n",))]
    if not constant:
        inputs.append(tensor("times", INT64, (1,)))
    node = helper.make_node("Tile", ["x", "times"], ["y"])
    return model([node], inputs, [tensor("y", FLOAT, ("m",))], [times] if constant else [])


def of_function(body: str) -> bytes:
    """Y = f(x), f being one operator."""
    made = onnx.load_model_from_string(good.identity("FP32"))
    made.graph.node[0].op_type, made.graph.node[0].domain = "F", "mine"
    made.opset_import.add(domain="mine", version=1)
    node = helper.make_node(body, ["a"], ["b"])
    made.functions.append(
        helper.make_function("mine", "F", ["a"], ["b"], [node], list(made.opset_import))
    )
    return made.SerializeToString()


def of_domain(domain: str) -> bytes:
    """Identity of somebody's own."""
    made = onnx.load_model_from_string(good.identity("FP32"))
    made.graph.node[0].domain = domain
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("graph", "steady"),
    [
        pytest.param(good.affine(2.0), True, id="arithmetic"),
        pytest.param(good.gather(), True, id="gather"),
        pytest.param(good.counting(), False, id="loop"),
        pytest.param(grown(constant=True), True, id="grows by a constant"),
        pytest.param(grown(constant=False), False, id="grows as the caller says"),
        pytest.param(of_function("Neg"), True, id="function"),
        pytest.param(of_function("SequenceConstruct"), False, id="sequence in a function"),
        pytest.param(of_domain("com.microsoft"), True, id="the runtime's domain"),
        pytest.param(of_domain("somebody.else"), False, id="unknown domain"),
    ],
)
def test_what_is_steady(graph: bytes, steady: bool) -> None:
    """Nothing may repeat, choose or grow by values, nor be unknown."""
    assert is_steady(onnx.load_model_from_string(graph)) is steady
