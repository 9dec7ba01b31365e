"""Real clients of the protocol work unchanged: tritonclient (gRPC and HTTP), buf curl, plain REST."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from services.cli.demo import digits, minilm
from tests.e2e.mesh import ROOT, Mesh, environment
from tests.e2e.oip_calls import http_json
from tests.models import good

BUF = str(Path(sys.executable).parent / "buf")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_tritonclient(protocol: str, mesh: Mesh, files: dict[str, Path]) -> None:
    """Metadata, readiness and inference on both demo models, with the answers of bare ONNX Runtime."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.triton_calls", protocol, mesh.address],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(mesh.state_dir, mesh.address),
        timeout=60,
    )
    assert not done.returncode, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["live"]
    assert seen["ready"]
    assert seen["server"] == "inferplane"
    assert seen["models"] == {"digits": True, "minilm": True}
    assert seen["version_2_ready"]
    image = seen["metadata"]["digits"]["inputs"][0]
    assert (image["name"], image["datatype"]) == ("image", "FP32")
    assert [int(n) for n in image["shape"]] == [-1, 64]
    session = onnxruntime.InferenceSession(files["digits@2"])
    labels = session.run(["label"], {"image": digits.load().held_out_images[:8]})[0]
    assert seen["labels"] == labels.tolist()
    assert seen["not_requested"] is None
    assert seen["response"] == {"model_name": "digits", "model_version": "2", "id": "r1"}
    counted = seen["statistics"]
    assert (counted["name"], counted["version"]) == ("digits", "2")
    assert int(counted["inference_count"]) >= 8
    assert int(counted["inference_stats"]["success"]["count"]) > 0
    assert counted["batch_stats"]
    assert {said["name"] for said in seen["all_statistics"]} >= {"digits", "minilm"}
    encoded = minilm.tokenizer().encode("A cat sleeps on the sofa.")
    feeds = {
        "input_ids": np.array([encoded.ids]),
        "attention_mask": np.array([encoded.attention_mask]),
        "token_type_ids": np.array([encoded.type_ids]),
    }
    bare = onnxruntime.InferenceSession(files["minilm@1"]).run(None, feeds)[0][0]
    np.testing.assert_allclose(seen["embedding"], bare, atol=1e-5)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_tritonclient_loads_and_unloads(
    protocol: str, mesh: Mesh, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A pushed model answers as soon as load_model returns, is gone after unload_model; overrides are refused."""
    model = f"by-triton-{protocol}"
    file = tmp_path_factory.mktemp("repository") / "m.onnx"
    file.write_bytes(good.identity("FP32"))
    mesh.cli("models", "push", model, str(file))
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.triton_repository", protocol, mesh.address, model],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(mesh.state_dir, mesh.address),
        timeout=60,
    )
    assert not done.returncode, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert [seen[key] for key in ("before", "loaded", "after")] == [
        "1 UNAVAILABLE",
        "1 READY",
        "1 UNAVAILABLE",
    ]
    assert seen["answer"] == seen["answer_again"] == [1.5, -2.0]
    assert f"endpoint '{model}' does not exist" in seen["not_loaded"]
    assert "parameters['config']: is refused" in seen["config"]
    assert "models/no-such-model does not exist" in seen["unknown"]
    assert seen["unload_again"] is None


def _buf_curl(mesh: Mesh, *arguments: str, path: str = "") -> str:
    command = [BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", *arguments]
    for name, value in mesh.key:
        command += ["--header", f"{name}: {value}", "--reflect-header", f"{name}: {value}"]
    done = subprocess.run(
        [*command, f"http://{mesh.address}{path}"], capture_output=True, text=True, timeout=60
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_reflection_lists_describes_and_calls(mesh: Mesh) -> None:
    """A generic client knows nothing of our protos, yet lists the services and calls one by reflection."""
    listed = _buf_curl(mesh, "--list-methods")
    assert "inference.GRPCInferenceService/ModelInfer" in listed
    assert "inferplane.registry.v1.ModelService/ListModels" in listed
    contents = {"fp32_contents": digits.load().held_out_images[0].tolist()}
    request = {
        "model_name": "digits",
        "inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 64], "contents": contents}],
    }
    path = "/inference.GRPCInferenceService/ModelInfer"
    answer = json.loads(_buf_curl(mesh, "--data", json.dumps(request), path=path))
    assert answer["modelName"] == "digits"
    assert answer["outputs"][0]["name"] == "label"


def test_rest_as_the_protocol_says(mesh: Mesh) -> None:
    """Health, metadata, readiness and inference over HTTP in the protocol's own shapes."""
    assert http_json(mesh, "/v2/health/live") == (200, {"live": True})
    assert http_json(mesh, "/v2/health/ready") == (200, {"ready": True})
    status, server = http_json(mesh, "/v2")
    assert (status, server["name"]) == (200, "inferplane")
    assert http_json(mesh, "/v2/models/digits/ready")[0] == 200
    status, metadata = http_json(mesh, "/v2/models/digits/versions/2")
    assert (status, metadata["inputs"]) == (
        200,
        [{"name": "image", "datatype": "FP32", "shape": [-1, 64]}],
    )
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, -2.0]}
    status, answer = http_json(mesh, "/v2/models/fp32/infer", {"inputs": [tensor]})
    assert status == 200
    assert answer["outputs"][0] == {
        "name": "y",
        "datatype": "FP32",
        "shape": [2],
        "data": [1.5, -2.0],
    }
