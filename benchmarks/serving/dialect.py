"""How a server is spoken to: requests as bytes, answers as arrays."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from inference import open_inference_pb2 as oip

from benchmarks.serving.workload import Array, Workload

_DATATYPES = {"float32": "FP32", "int64": "INT64"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way; `path` may hold the model's name as `{model}`."""

    name: str
    protocol: Literal["grpc", "http"]
    path: str
    content_type: str
    has_fixed_length: bool  # equal answers are equally long
    encode: Callable[[Workload, int], bytes]
    decode: Callable[[bytes], Array]


def _oip_request(workload: Workload, number: int) -> bytes:
    request = oip.ModelInferRequest(model_name=workload.name)
    for name, value in workload.requests[number].items():
        datatype = _DATATYPES[str(value.dtype)]
        request.inputs.add(name=name, datatype=datatype, shape=value.shape)
        request.raw_input_contents.append(value.tobytes())
    request.outputs.add(name=workload.output)
    return request.SerializeToString()


def _oip_answer(body: bytes) -> Array:
    answer = oip.ModelInferResponse.FromString(body)
    if answer.raw_output_contents:
        return np.frombuffer(answer.raw_output_contents[0], np.float32)
    return np.array(answer.outputs[0].contents.fp32_contents, np.float32)


def _raw_request(workload: Workload, number: int) -> bytes:
    return b"".join(value.tobytes() for value in workload.requests[number].values())


def _json_request(workload: Workload, number: int) -> bytes:
    """A row's inputs as lists, by name."""
    row = {name: value[0].tolist() for name, value in workload.requests[number].items()}
    return json.dumps(row).encode()


def _json_rows_request(workload: Workload, number: int) -> bytes:
    return b'{"rows": [' + _json_request(workload, number) + b"]}"


def _json_answer(body: bytes) -> Array:
    return np.array(json.loads(body), np.float32)


OIP = Dialect(
    "OIP gRPC",
    "grpc",
    "/inference.GRPCInferenceService/ModelInfer",
    "application/grpc",
    has_fixed_length=True,
    encode=_oip_request,
    decode=_oip_answer,
)
RAW = Dialect(
    "HTTP raw bytes",
    "http",
    "/{model}",
    "application/octet-stream",
    has_fixed_length=True,
    encode=_raw_request,
    decode=lambda body: np.frombuffer(body, np.float32),
)
JSON = Dialect(
    "HTTP JSON",
    "http",
    "/{model}",
    "application/json",
    has_fixed_length=False,
    encode=_json_request,
    decode=_json_answer,
)
JSON_ROWS = Dialect(
    "HTTP JSON",
    "http",
    "/{model}",
    "application/json",
    has_fixed_length=False,
    encode=_json_rows_request,
    decode=_json_answer,
)
