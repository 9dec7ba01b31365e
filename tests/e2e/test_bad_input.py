"""Bad input through the edge: the right status, a message naming field, given and allowed, and workers that live on."""

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc as oip_grpc

from tests.e2e.mesh import Mesh
from tests.e2e.oip_calls import http, raw_request
from tests.models import bad, good

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND


@pytest.fixture(autouse=True)
def workers_live_on(mesh: Mesh) -> Iterator[None]:
    """Whatever a test sends, the worker processes stay the same."""
    before = {p.pid for p in mesh.processes("services.worker")}
    yield
    assert {p.pid for p in mesh.processes("services.worker")} == before


def _request(**changes: Any) -> oip.ModelInferRequest:
    """A good request to `fp32` (x FP32 [n]) with some fields replaced."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], **changes.pop("tensor", {})}
    fields = {"model_name": "fp32", "raw_input_contents": [bytes(8)], **changes}
    fields.setdefault("inputs", [tensor])
    return oip.ModelInferRequest(**fields)


X = {"name": "x", "datatype": "FP32", "shape": [2]}
GRPC_CASES: dict[str, tuple[oip.ModelInferRequest, grpc.StatusCode, list[str]]] = {
    "unknown model": (_request(model_name="nope"), NOT_FOUND, ["nope"]),
    "unknown version": (_request(model_version="99"), NOT_FOUND, ["fp32", "99"]),
    "no model": (_request(model_name=""), NOT_FOUND, []),
    "name with slash": (_request(model_name="a/b"), NOT_FOUND, []),
    "name with dots": (_request(model_name=".."), NOT_FOUND, []),
    "name with percent": (_request(model_name="%2e%2e"), NOT_FOUND, []),
    "name with NUL": (_request(model_name="a\x00b"), NOT_FOUND, []),
    "name of 300 characters": (_request(model_name="x" * 300), NOT_FOUND, []),
    "wrong dtype": (
        _request(tensor={"datatype": "INT32"}),
        INVALID,
        ["inputs[0]", "INT32", "FP32"],
    ),
    "unknown dtype": (_request(tensor={"datatype": "FP33"}), INVALID, ["inputs[0]", "FP33"]),
    "wrong rank": (_request(tensor={"shape": [1, 2]}), INVALID, ["inputs[0].shape", "[1, 2]"]),
    "wrong fixed dimension": (
        raw_request("digits", "FP32", [1, 63], bytes(252), "image"),
        INVALID,
        ["inputs[0].shape", "63", "64"],
    ),
    "missing input": (_request(inputs=[], raw_input_contents=[]), INVALID, ["inputs", "x"]),
    "extra input": (
        _request(inputs=[X, {**X, "name": "z"}], raw_input_contents=[bytes(8)] * 2),
        INVALID,
        ["inputs[1]", "z"],
    ),
    "raw length": (
        _request(raw_input_contents=[bytes(7)]),
        INVALID,
        ["raw_input_contents[0]", "7", "8"],
    ),
    "raw mixed with typed": (
        _request(tensor={"contents": {"fp32_contents": [1, 2]}}),
        INVALID,
        ["raw_input_contents"],
    ),
    "negative dimension": (_request(tensor={"shape": [-2]}), INVALID, ["inputs[0].shape", "-2"]),
    "shape overflow": (
        raw_request("fp32", "FP32", [1 << 62], b""),
        INVALID,
        ["inputs[0].shape"],
    ),
    "BYTES past the end": (
        raw_request("text", "BYTES", [1], (100).to_bytes(4, "little") + b"ab"),
        INVALID,
        ["raw_input_contents[0]"],
    ),
    "BYTES not UTF-8": (
        raw_request("text", "BYTES", [1], (2).to_bytes(4, "little") + b"\xff\xfe"),
        INVALID,
        ["raw_input_contents[0]"],
    ),
    "unknown output": (_request(outputs=[{"name": "q"}]), INVALID, ["outputs[0]", "q", "y"]),
}


@pytest.mark.parametrize("case", GRPC_CASES)
def test_by_grpc(case: str, mesh: Mesh) -> None:
    """Each bad request ends with its status and says what was wrong."""
    request, code, words = GRPC_CASES[case]
    with mesh.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        oip_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=10)
    text = str(caught.value.details())
    assert caught.value.code() is code, text
    assert [word for word in words if word not in text] == []


def test_zero_size_is_answered(mesh: Mesh) -> None:
    """A tensor without elements is no error where the model's dimension is free."""
    with mesh.channel() as channel:
        answer = oip_grpc.GRPCInferenceServiceStub(channel).ModelInfer(
            raw_request("fp32", "FP32", [0], b""), timeout=10
        )
    assert list(answer.outputs[0].shape) == [0]


def _tensor(data: str, datatype: str = "FP32", shape: str = "[2]") -> bytes:
    text = '{"inputs": [{"name": "x", "datatype": "%s", "shape": %s, "data": %s}]}'
    return (text % (datatype, shape, data)).encode()


REST_CASES: dict[str, tuple[str, bytes, int, list[str]]] = {
    "unknown model": ("/v2/models/nope/infer", _tensor("[1, 2]"), 404, ["nope"]),
    "unknown version": ("/v2/models/fp32/versions/99/infer", _tensor("[1, 2]"), 404, ["99"]),
    "invalid JSON": ("/v2/models/fp32/infer", b'{"inputs": [', 400, ["JSON"]),
    "empty body": ("/v2/models/fp32/infer", b"", 400, []),
    "not an object": ("/v2/models/fp32/infer", b"[]", 400, []),
    "NaN": ("/v2/models/fp32/infer", _tensor("[NaN, 2]"), 400, ["JSON"]),
    "Infinity": ("/v2/models/fp32/infer", _tensor("[Infinity, 2]"), 400, ["JSON"]),
    "not UTF-8": ("/v2/models/fp32/infer", _tensor("[1, 2]") + b"\xff", 400, []),
    "wrong nesting": ("/v2/models/fp32/infer", _tensor("[[1], [2, 3]]"), 400, ["inputs[0]"]),
    "too few values": ("/v2/models/fp32/infer", _tensor("[1]"), 400, ["inputs[0]"]),
    "wrong type": ("/v2/models/fp32/infer", _tensor('["a", "b"]'), 400, ["inputs[0]"]),
    "wrong dtype": ("/v2/models/fp32/infer", _tensor("[1, 2]", "INT8"), 400, ["inputs[0]", "INT8"]),
    "huge shape": (
        "/v2/models/fp32/infer",
        _tensor("[1]", shape="[99999999999999]"),
        400,
        ["shape"],
    ),
    "negative shape": ("/v2/models/fp32/infer", _tensor("[1]", shape="[-1]"), 400, ["shape"]),
    "path with dots": ("/v2/models/%2e%2e/infer", _tensor("[1, 2]"), 404, []),
    "path with slash": ("/v2/models/a%2Fb/infer", _tensor("[1, 2]"), 400, ["slash"]),
    "path with NUL": ("/v2/models/a%00b/infer", _tensor("[1, 2]"), 400, []),
    "path of 300": (f"/v2/models/{'x' * 300}/infer", _tensor("[1, 2]"), 404, []),
    "no such path": ("/v3/models", b"{}", 404, []),
}


@pytest.mark.parametrize("case", REST_CASES)
def test_by_rest(case: str, mesh: Mesh) -> None:
    """Each bad request ends with its status and `{"error": …}` that says what was wrong."""
    path, body, wanted, words = REST_CASES[case]
    status, _, answer = http(mesh, path, body, {"content-type": "application/json"})
    assert status == wanted, answer
    text = json.loads(answer)["error"]
    assert text
    assert [word for word in words if word not in text] == []


def _push(mesh: Mesh, name: str, path: Path) -> tuple[int, str]:
    done = mesh.cli("models", "push", name, str(path), check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(bad.corrupt(), ["model.onnx"], id="corrupt"),
        pytest.param(pickle.dumps({"w": [1]}), ["pickle"], id="a pickle named .onnx"),
        pytest.param(b"", ["model.onnx"], id="empty"),
        pytest.param(bad.external("../secret"), ["../secret"], id="external data above"),
        pytest.param(bad.external("/etc/passwd"), ["/etc/passwd"], id="external data absolute"),
    ],
)
def test_bad_artifact_is_refused_and_leaves_nothing(
    content: bytes, words: list[str], mesh: Mesh, tmp_path: Path
) -> None:
    """A file that is no safe model is refused by the push, and neither version nor bytes stay."""
    before = _blobs(mesh)
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    code, text = _push(mesh, "broken@1", path)
    assert code == 5, text
    assert [word for word in words if word not in text] == []
    assert mesh.cli("models", "get", "broken@1", check=False).returncode == 3
    assert _blobs(mesh) == before


def _blobs(mesh: Mesh) -> set[str]:
    return {p.name for p in mesh.state_dir.rglob("*") if p.is_file() and len(p.name) >= 64}


@pytest.mark.parametrize("kind", ["symlink", "hard link"])
def test_links_are_not_pushed(kind: str, mesh: Mesh, tmp_path: Path) -> None:
    """A pushed folder with a link in it is refused with the link's path: links can lead anywhere."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(good.identity("FP32"))
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"secret")
    link = folder / "weights.bin"
    if kind == "symlink":
        link.symlink_to(outside)
    else:
        os.link(outside, link)
    code, text = _push(mesh, "linked@1", folder)
    assert code != 0
    assert "weights.bin" in text


@pytest.mark.parametrize(
    "name", ["a/b", "..", "a%2eb", "A", "x" * 300, ""], ids=lambda n: n[:10] or "empty"
)
def test_bad_model_names_are_refused(name: str, mesh: Mesh, tmp_path: Path) -> None:
    """A name that is no id is refused with the rule."""
    path = tmp_path / "model.onnx"
    path.write_bytes(good.identity("FP32"))
    code, text = _push(mesh, f"{name}@1", path)
    assert code in {2, 5}
    assert "a-z" in text


@pytest.mark.parametrize("weights", [["0"], ["-1"], ["nan"], ["inf"], ["0", "0"]])
def test_bad_weights_are_refused(weights: list[str], mesh: Mesh) -> None:
    """A weight that is no share is refused with the rule, and the split stays."""
    before = mesh.json("endpoints", "get", "digits")["targets"]
    split = [f"{n}={w}" for n, w in enumerate(weights, start=1)]
    done = mesh.cli("traffic", "set", "digits", *split, check=False)
    assert done.returncode in {2, 5}
    assert "weight" in done.stderr
    assert "greater than 0" in done.stderr or "finite" in done.stderr
    assert mesh.json("endpoints", "get", "digits")["targets"] == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("models", "delete", "digits@2"),
        ("undeploy", "digits@2"),
    ],
)
def test_what_is_served_is_not_deleted(arguments: tuple[str, ...], mesh: Mesh) -> None:
    """Deleting a version that an endpoint sends traffic to is refused, naming the endpoint."""
    done = mesh.cli(*arguments, check=False)
    assert done.returncode == 5, done.stderr
    assert "endpoints/digits" in done.stderr
