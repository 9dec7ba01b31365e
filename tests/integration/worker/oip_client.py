"""Calls in the Open Inference Protocol, in few words."""

import time
from collections.abc import Mapping
from typing import Any

import grpc
import ml_dtypes
import numpy as np
from google.api.httpbody_pb2 import HttpBody
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc
from inferplane.oip.v1 import rest_service_pb2, rest_service_pb2_grpc

Array = np.ndarray[Any, np.dtype[Any]]
TRIALS = 3  # calls of `rounds_for`

NAMES = {
    np.dtype(np.float32): "FP32",
    np.dtype(np.float16): "FP16",
    np.dtype(np.int64): "INT64",
    np.dtype(ml_dtypes.bfloat16): "BF16",
}


def request(model: str, **inputs: Array) -> oip.ModelInferRequest:
    """A request with raw contents."""
    made = oip.ModelInferRequest(model_name=model)
    for name, array in inputs.items():
        made.inputs.add(name=name, datatype=NAMES[array.dtype], shape=array.shape)
        made.raw_input_contents.append(array.tobytes())
    return made


class Client:
    """The worker's methods."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.oip = open_inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        self.rest = rest_service_pb2_grpc.RestInferenceServiceStub(channel)

    async def infer(self, model: str, **inputs: Array) -> oip.ModelInferResponse:
        """One inference with raw contents."""
        return await self.oip.ModelInfer(request(model, **inputs))

    async def post(
        self, model: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, str, int | None]:
        """One REST inference: body, content type and JSON length of the answer."""
        call = self.rest.ModelInfer(
            rest_service_pb2.ModelInferRequest(
                model_name=model, http_body=HttpBody(data=body, content_type="application/json")
            ),
            metadata=tuple((headers or {}).items()),
        )
        answer = await call
        initial = dict(await call.initial_metadata())
        length = initial.get("inference-header-content-length")
        return answer.data, answer.content_type, None if length is None else int(length)


async def rounds_for(client: Client, model: str, seconds: float) -> Array:
    """How often `good.counting` must go round to compute for about so long on this machine.

    The quickest of `TRIALS` calls counts: in the others the machine may have been busy with something else.
    """
    tried, quickest = 200_000, float("inf")
    for _ in range(TRIALS):
        started = time.monotonic()
        await client.infer(model, x=np.ones(1, np.float32), rounds=np.array([tried], np.int64))
        quickest = min(quickest, time.monotonic() - started)
    return np.array([int(tried * seconds / quickest)], np.int64)


def output(response: oip.ModelInferResponse, index: int = 0) -> Array:
    """An output as an array."""
    dtypes = {name: dtype for dtype, name in NAMES.items()}
    tensor = response.outputs[index]
    data = np.frombuffer(response.raw_output_contents[index], dtypes[tensor.datatype])
    return data.reshape(tensor.shape)


def details(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """The error's details by message name: ErrorInfo, BadRequest, RetryInfo."""
    found: dict[str, Any] = {}
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for box in status_pb2.Status.FromString(value).details:
                name, message = _unpacked(box)
                assert name not in found
                found[name] = message
    return found


def _unpacked(box: any_pb2.Any) -> tuple[str, Any]:
    name = box.type_url.rpartition(".")[2]
    message = getattr(error_details_pb2, name)()
    assert box.Unpack(message)
    return name, message
