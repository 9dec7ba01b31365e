"""Requests of the Open Inference Protocol to the edge: gRPC and REST, as any client with a key sends them."""

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc as oip_grpc

from services.cli.adapters import access

_SECONDS = 10.0
_DATATYPES = {"float32": "FP32", "int64": "INT64"}
_DTYPES: dict[str, type[np.generic]] = {"FP32": np.float32, "INT64": np.int64}

Tensors = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    version: str  # that computed it
    outputs: dict[str, npt.NDArray[np.generic]]


def request(endpoint: str, tensors: Tensors, version: str = "") -> oip.ModelInferRequest:
    """The gRPC request for these inputs; `version` pins one."""
    return oip.ModelInferRequest(
        model_name=endpoint,
        model_version=version,
        inputs=[
            oip.ModelInferRequest.InferInputTensor(
                name=name, datatype=_DATATYPES[array.dtype.name], shape=array.shape
            )
            for name, array in tensors.items()
        ],
        raw_input_contents=[np.ascontiguousarray(array).tobytes() for array in tensors.values()],
    )


def answer(response: oip.ModelInferResponse) -> Answer:
    """The response's tensors as arrays."""
    outputs: dict[str, npt.NDArray[np.generic]] = {
        tensor.name: np.frombuffer(raw, _DTYPES[tensor.datatype]).reshape(tuple(tensor.shape))
        for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }
    return Answer(response.model_version, outputs)


def infer_grpc(address: str, endpoint: str, tensors: Tensors, version: str = "") -> Answer:
    """One gRPC call."""
    with grpc.insecure_channel(address) as channel:
        stub = oip_grpc.GRPCInferenceServiceStub(channel)
        asked = request(endpoint, tensors, version)
        key = access.metadata(address)
        return answer(stub.ModelInfer(asked, timeout=_SECONDS, metadata=key))


def infer_rest(address: str, endpoint: str, tensors: Tensors) -> Answer:
    """One REST call."""
    body = {
        "inputs": [
            {
                "name": name,
                "datatype": _DATATYPES[array.dtype.name],
                "shape": list(array.shape),
                "data": array.tolist(),
            }
            for name, array in tensors.items()
        ]
    }
    call = urllib.request.Request(
        f"http://{address}/v2/models/{endpoint}/infer",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", **access.headers(address)},
    )
    with urllib.request.urlopen(call, timeout=_SECONDS) as reply:  # noqa: S310 - as above
        said: dict[str, Any] = json.load(reply)
    outputs: dict[str, npt.NDArray[np.generic]] = {
        tensor["name"]: np.array(tensor["data"], _DTYPES[tensor["datatype"]]).reshape(
            tensor["shape"]
        )
        for tensor in said["outputs"]
    }
    return Answer(said["model_version"], outputs)
