"""Big tensors and every bit pattern pass the whole path unchanged; what is too big is refused with the limit."""

import json

import grpc
import numpy as np
import pytest
from inference import open_inference_pb2_grpc as oip_grpc

from services.rpc.channel import options
from tests.e2e.mesh import Mesh
from tests.e2e.oip_calls import http, http_json, raw_request

MIB = 1 << 20
LIMIT = 64 * MIB


@pytest.mark.parametrize("endpoint", ["fp16", "bf16"])
def test_all_bit_patterns_by_grpc(endpoint: str, mesh: Mesh) -> None:
    """All 65,536 patterns of a 16-bit float, infinities and NaN payloads among them, come back bit for bit."""
    patterns = np.arange(65536, dtype=np.uint16).tobytes()
    with mesh.channel() as channel:
        stub = oip_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelInfer(raw_request(endpoint, endpoint.upper(), [65536], patterns))
    assert answer.outputs[0].datatype == endpoint.upper()
    assert answer.raw_output_contents[0] == patterns


@pytest.mark.parametrize("endpoint", ["fp16", "bf16"])
def test_all_bit_patterns_by_binary_rest(endpoint: str, mesh: Mesh) -> None:
    """The same over HTTP with the binary-tensor extension."""
    patterns = np.arange(65536, dtype=np.uint16).tobytes()
    assert _binary_rest(mesh, endpoint, endpoint.upper(), [65536], patterns) == patterns


def _binary_rest(mesh: Mesh, endpoint: str, datatype: str, shape: list[int], raw: bytes) -> bytes:
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "datatype": datatype,
                    "shape": shape,
                    "parameters": {"binary_data_size": len(raw)},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    status, headers, body = http(
        mesh,
        f"/v2/models/{endpoint}/infer",
        head + raw,
        {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(len(head)),
        },
    )
    assert status == 200, body
    length = int(headers["inference-header-content-length"])
    (output,) = json.loads(body[:length])["outputs"]
    assert output["parameters"]["binary_data_size"] == len(body) - length
    assert output["shape"] == shape
    return body[length:]


def test_ten_megabytes_by_grpc(mesh: Mesh) -> None:
    """A 10 MB tensor goes there and back."""
    values = np.random.default_rng(0).standard_normal(2_500_000, dtype=np.float32)
    with mesh.channel(options=options()) as channel:
        stub = oip_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelInfer(raw_request("fp32", "FP32", values.shape, values.tobytes()))
    assert answer.raw_output_contents[0] == values.tobytes()


def test_ten_megabytes_by_rest(mesh: Mesh) -> None:
    """A 10 MB tensor over HTTP: as binary bit for bit, as JSON with equal values."""
    values = np.random.default_rng(1).standard_normal(2_500_000, dtype=np.float32)
    raw = values.tobytes()
    assert _binary_rest(mesh, "fp32", "FP32", [values.size], raw) == raw
    few = values[:500_000]  # about 10 MB of text
    tensor = {"name": "x", "datatype": "FP32", "shape": [few.size], "data": few.tolist()}
    status, answer = http_json(mesh, "/v2/models/fp32/infer", {"inputs": [tensor]})
    assert status == 200
    np.testing.assert_array_equal(np.array(answer["outputs"][0]["data"], np.float32), few)


def test_65_mebibytes_are_refused_by_grpc(mesh: Mesh) -> None:
    """A message over the limit is RESOURCE_EXHAUSTED with the limit in its text."""
    raw = bytes(65 * MIB)
    with mesh.channel(options=options(2 * LIMIT)) as channel:
        stub = oip_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(raw_request("fp32", "FP32", [len(raw) // 4], raw), timeout=60)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(LIMIT) in str(caught.value.details())


def test_65_mebibytes_are_refused_by_rest(mesh: Mesh) -> None:
    """A body over the limit is 413 with the limit in its text."""
    status, _, body = http(
        mesh,
        "/v2/models/fp32/infer",
        bytes(65 * MIB),
        {"content-type": "application/json"},
    )
    assert status == 413
    assert str(LIMIT) in json.loads(body)["error"]


def test_text_passes_unchanged(mesh: Mesh) -> None:
    """BYTES of any length and alphabet come back the same, by gRPC and by REST."""
    texts = ["", "é", "日本語", "x" * 100_000, "line\nbreak\x00"]
    raw = b"".join(len(t.encode()).to_bytes(4, "little") + t.encode() for t in texts)
    with mesh.channel() as channel:
        stub = oip_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelInfer(raw_request("text", "BYTES", [len(texts)], raw))
    assert answer.raw_output_contents[0] == raw
    tensor = {"name": "x", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    status, said = http_json(mesh, "/v2/models/text/infer", {"inputs": [tensor]})
    assert (status, said["outputs"][0]["data"]) == (200, texts)
