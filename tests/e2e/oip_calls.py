"""Plain OIP requests for the end-to-end tests."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from inference import open_inference_pb2 as oip

from benchmarks.load import Sample
from services.cli.demo import digits
from tests.e2e.mesh import Mesh


def raw_request(
    endpoint: str, datatype: str, shape: Iterable[int], raw: bytes, name: str = "x"
) -> oip.ModelInferRequest:
    """One input as raw bytes."""
    tensor = oip.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    return oip.ModelInferRequest(model_name=endpoint, inputs=[tensor], raw_input_contents=[raw])


def digit_samples(
    mesh: Mesh, expected: dict[str, npt.NDArray[np.int64]], count: int = 64
) -> list[Sample]:
    """Requests on held-out images, judged by what each version says of them (`expected`, by version)."""
    key = mesh.key
    return [_digit_sample(expected, number, key) for number in range(count)]


def _digit_sample(
    expected: dict[str, npt.NDArray[np.int64]], number: int, key: tuple[tuple[str, str], ...]
) -> Sample:
    image = digits.load().held_out_images[number]
    request = raw_request("digits", "FP32", [1, 64], image.tobytes(), "image")
    request.outputs.add(name="label")

    def is_right(answer: oip.ModelInferResponse) -> bool:
        label = np.frombuffer(answer.raw_output_contents[0], np.int64)
        return bool(label[0] == expected[answer.model_version][number])

    return Sample(request, is_right, key)


def http(
    mesh: Mesh,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """One HTTP call with the first admin's key: status, headers (lower case) and body, whatever the status."""
    told = {**dict(mesh.key), **(headers or {})}
    call = urllib.request.Request(f"http://{mesh.address}{path}", data=body, headers=told)
    try:
        with urllib.request.urlopen(call, timeout=60) as reply:
            return reply.status, _lower(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _lower(error.headers), error.read()


def http_json(mesh: Mesh, path: str, document: Any = None) -> tuple[int, Any]:
    """One HTTP call with JSON both ways."""
    body = None if document is None else json.dumps(document).encode()
    status, _, answer = http(mesh, path, body, {"content-type": "application/json"})
    return status, json.loads(answer)


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
