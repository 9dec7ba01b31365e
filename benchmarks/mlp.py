"""A small perceptron, 30-64-64-1, as fraud detectors are: a model that costs less than any server around it."""

import itertools
from pathlib import Path

import numpy as np
import onnxruntime
from inference import open_inference_pb2 as oip
from onnx import TensorProto, helper, numpy_helper

from benchmarks.h2_load import Exchange, framed
from tests.models.build import model, tensor

FEATURES = 30
_WIDTHS = (FEATURES, 64, 64, 1)
_SEED = 20_261_130


def graph() -> bytes:
    """Input `features` FP32 [n, 30], output `probability` FP32 [n, 1]."""
    draw = np.random.default_rng(_SEED)
    nodes, weights, last = [], [], "features"
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(_WIDTHS)):
        matrix = draw.normal(scale=np.sqrt(2 / fan_in), size=(fan_in, fan_out)).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        weights.append(numpy_helper.from_array(np.zeros(fan_out, np.float32), f"b{layer}"))
        nodes.append(helper.make_node("Gemm", [last, f"w{layer}", f"b{layer}"], [f"h{layer}"]))
        last = f"a{layer}" if fan_out > 1 else "probability"
        kind = "Relu" if fan_out > 1 else "Sigmoid"
        nodes.append(helper.make_node(kind, [f"h{layer}"], [last]))
    return model(
        nodes,
        [tensor("features", TensorProto.FLOAT, ["n", FEATURES])],
        [tensor("probability", TensorProto.FLOAT, ["n", 1])],
        weights,
    )


def requests(name: str, count: int) -> list[oip.ModelInferRequest]:
    """Requests of one row each, raw."""
    random = np.random.default_rng(_SEED + 1)
    made = []
    for row in random.normal(0, 1, (count, FEATURES)).astype(np.float32):
        request = oip.ModelInferRequest(model_name=name)
        request.inputs.add(name="features", datatype="FP32", shape=[1, FEATURES])
        request.raw_input_contents.append(row.tobytes())
        made.append(request)
    return made


def probabilities(asked: list[oip.ModelInferRequest], file: Path | bytes) -> list[np.ndarray]:
    """What bare ONNX Runtime answers to each alone."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        file if isinstance(file, bytes) else str(file), options, ["CPUExecutionProvider"]
    )
    rows = [np.frombuffer(r.raw_input_contents[0], np.float32).reshape(1, -1) for r in asked]
    return [session.run(["probability"], {"features": row})[0] for row in rows]


def exchanges(name: str, version: str, count: int = 64) -> list[Exchange]:
    """Requests, and the bytes with which a worker must answer them.

    Bytes, since Gemm of ONNX Runtime gives a row the same bits alone and in a batch for this model (the load-time check
    and this benchmark would both tell if it did not).
    """
    made = []
    asked = requests(name, count)
    for request, answer in zip(asked, probabilities(asked, graph()), strict=True):
        response = oip.ModelInferResponse(model_name=name, model_version=version)
        response.outputs.add(name="probability", datatype="FP32", shape=answer.shape)
        response.raw_output_contents.append(answer.tobytes())
        made.append(
            Exchange(framed(request.SerializeToString()), framed(response.SerializeToString()))
        )
    return made
