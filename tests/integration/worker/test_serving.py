"""A worker process serves what is placed: over gRPC and REST, every datatype, real clients."""

import asyncio
import sys
from pathlib import Path

import grpc
import ml_dtypes
import numpy as np
import orjson
import pytest
import tritonclient.http as triton_http
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from inference import open_inference_pb2 as oip
from inferplane.oip.v1 import rest_service_pb2 as rest

from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, output, request
from tests.integration.worker.worker_process import running
from tests.models import artifact, good
from tests.models.build import ONNX_KINDS

V1, V2 = "models/affine/versions/1", "models/affine/versions/2"
pytestmark = pytest.mark.usefixtures("both_fronts")

CLIENT = str(Path(__file__).with_name("triton_grpc.py"))
X = np.arange(8, dtype=np.float32).reshape(2, 4)


async def test_a_placed_version_is_pulled_loaded_and_answers(home: Home) -> None:
    """From placement to answer and out: each state is reported in its order, health follows, the exit status is 0."""
    await home.registry.put(V1, artifact.of_model(good.affine(3.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(V1, "READY")
        health = health_pb2_grpc.HealthStub(worker.channel)
        for service in ("", V1):
            checked = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert checked.status == health_pb2.HealthCheckResponse.SERVING
        answer = await Client(worker.channel).infer("affine", x=X)
        assert (output(answer, 0) == 3 * X).all()
        assert (output(answer, 1) == -X).all()
        assert [o.name for o in answer.outputs] == ["y", "z"]
        worker.ask_to_stop()
        assert await worker.ended() == 0
    states = [v.state for w in home.registry.reports for v in w.versions]
    assert states == sorted(states)
    (name,) = {w.name for w in home.registry.reports}
    assert name.startswith("workers/default-")
    assert not home.registry.workers
    assert home.registry.reports[-1].draining


async def test_versions_endpoints_and_what_the_body_says(home: Home) -> None:
    """Envoy's headers decide; without them the newest version answers; the body must agree with the headers."""
    await home.registry.put(V1, artifact.of_model(good.affine(1.0)))
    await home.registry.put(V2, artifact.of_model(good.affine(2.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(V1, "READY")
        await home.registry.until_state(V2, "READY")
        client = Client(worker.channel)
        assert (await client.infer("affine", x=X)).model_version == "2"
        asked = request("shop", x=X)
        asked.id = "17"
        asked.outputs.add(name="z")
        routed = (("x-inferplane-version", V1), ("x-inferplane-endpoint", "shop"))
        answer = await client.oip.ModelInfer(asked, metadata=routed)
        assert (answer.model_name, answer.model_version, answer.id) == ("shop", "1", "17")
        assert [o.name for o in answer.outputs] == ["z"]
        other = (("x-inferplane-version", V1), ("x-inferplane-endpoint", "other"))
        with pytest.raises(grpc.aio.AioRpcError, match="routed for 'other'"):
            await client.oip.ModelInfer(asked, metadata=other)
        gone = (("x-inferplane-version", "models/affine/versions/9"),)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.oip.ModelInfer(asked, metadata=gone)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        ready = await client.oip.ModelReady(oip.ModelReadyRequest(name="affine", version="1"))
        assert ready.ready
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.oip.ModelReady(oip.ModelReadyRequest(name="nobody"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_every_datatype_passes_an_identity_bit_for_bit(home: Home) -> None:
    """Raw bytes in, the same raw bytes out, for all datatypes; FP16 and BF16 with all their bit patterns."""
    for datatype in ONNX_KINDS:
        name = f"models/id-{datatype.lower()}/versions/1"
        await home.registry.put(name, artifact.of_model(good.identity(datatype)))
    async with running(home.folder, home.registry_address) as worker:
        client = Client(worker.channel)
        for datatype in ONNX_KINDS:
            await home.registry.until_state(f"models/id-{datatype.lower()}/versions/1", "READY")
            made = oip.ModelInferRequest(model_name=f"id-{datatype.lower()}")
            if datatype == "BYTES":
                data = b"\0\0\0\0\x03\0\0\0a\xc3\xbc\x01\0\0\0\0"
                count = 3
            elif datatype == "BOOL":
                data, count = b"\0\1\1\0", 4
            else:
                data = np.arange(1 << 16, dtype=np.uint16).tobytes()
                size = {"8": 1, "16": 2, "32": 4, "64": 8}
                count = len(data) // next(
                    size[bits] for bits in ("16", "32", "64", "8") if datatype.endswith(bits)
                )
            made.inputs.add(name="x", datatype=datatype, shape=[count])
            made.raw_input_contents.append(data)
            answer = await client.oip.ModelInfer(made)
            assert answer.outputs[0].datatype == datatype
            assert list(answer.outputs[0].shape) == [count]
            assert answer.raw_output_contents[0] == data


async def test_sixteen_bit_types_are_batched_bit_for_bit(home: Home) -> None:
    """Joined with other requests, NaN payloads come back unchanged and to the right caller."""
    version = "models/half/versions/1"
    await home.registry.put(version, artifact.of_model(good.identity("BF16")))
    # Eight of the requests in a batch; larger ones make the check at load long.
    limits = {"max_batch_size": "8192", "max_queue_rows": "65536"}
    async with running(home.folder, home.registry_address, **limits) as worker:
        await home.registry.until_state(version, "READY")
        client = Client(worker.channel)
        patterns = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
        parts = np.array_split(patterns, 64)
        answers = await asyncio.gather(*(client.infer("half", x=part) for part in parts))
        for part, answer in zip(parts, answers, strict=True):
            assert answer.raw_output_contents[0] == part.tobytes()


async def test_tritonclient_over_grpc(home: Home) -> None:
    """A real client's metadata, readiness and inference, with parameters that mean nothing here."""
    await home.registry.put(V1, artifact.of_model(good.affine(3.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(V1, "READY")

        client = await asyncio.create_subprocess_exec(sys.executable, CLIENT, worker.address)
        assert await client.wait() == 0


async def test_rest_bodies_in_and_out(home: Home) -> None:
    """JSON and binary tensors as a real client writes them; the JSON length comes as initial metadata."""
    await home.registry.put(V1, artifact.of_model(good.affine(3.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(V1, "READY")
        client = Client(worker.channel)
        said = {"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": X.tolist()}]}
        body, kind, length = await client.post("affine", orjson.dumps(said))
        assert (kind, length) == ("application/json", None)
        assert orjson.loads(body)["outputs"][0]["data"] == (3 * X).ravel().tolist()
        x = triton_http.InferInput("x", [2, 4], "FP32")
        x.set_data_from_numpy(X)
        sent, header = triton_http.InferenceServerClient.generate_request_body([x])
        body, kind, length = await client.post(
            "affine", sent, {"inference-header-content-length": str(header)}
        )
        assert kind == "application/octet-stream"
        result = triton_http.InferenceServerClient.parse_response_body(body, header_length=length)
        assert (result.as_numpy("z") == -X).all()


async def test_rest_readiness_and_metadata(home: Home) -> None:
    """What OIP clients read over HTTP, as the protocol's JSON."""
    await home.registry.put(V1, artifact.of_model(good.affine(3.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(V1, "READY")
        stub = Client(worker.channel).rest
        live = await stub.ServerLive(rest.ServerLiveRequest())
        ready = await stub.ServerReady(rest.ServerReadyRequest())
        assert (orjson.loads(live.data), orjson.loads(ready.data)) == (
            {"live": True},
            {"ready": True},
        )
        server = orjson.loads((await stub.ServerMetadata(rest.ServerMetadataRequest())).data)
        assert server["name"] == "inferplane"
        assert "binary_tensor_data" in server["extensions"]
        about = await stub.ModelMetadata(rest.ModelMetadataRequest(model_name="affine"))
        assert orjson.loads(about.data) == {
            "name": "affine",
            "versions": ["1"],
            "platform": "onnxruntime_onnx",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [
                {"name": "y", "datatype": "FP32", "shape": [-1, 4]},
                {"name": "z", "datatype": "FP32", "shape": [-1, 4]},
            ],
        }
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ModelReady(rest.ModelReadyRequest(model_name="nobody"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_large_tensors_pass_and_larger_ones_name_the_limit(home: Home) -> None:
    """10 MB both ways; 65 MiB is RESOURCE_EXHAUSTED, on the way in and on the way out; the worker lives on."""
    version = "models/id/versions/1"
    await home.registry.put(version, artifact.of_model(good.identity("FP32", ("n",))))
    await home.registry.put(V1, artifact.of_model(good.affine(1.0, 1024)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(version, "READY")
        await home.registry.until_state(V1, "READY")
        client = Client(worker.channel)
        big = np.random.default_rng(1).random(2_500_000, dtype=np.float32)
        assert (output(await client.infer("id", x=big)) == big).all()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.infer("id", x=np.zeros(65 << 18, np.float32))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError, match="67108864") as caught:
            await client.infer("affine", x=np.zeros((9 << 10, 1 << 10), np.float32))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (output(await client.infer("id", x=big[:3])) == big[:3]).all()
        assert worker.is_alive


async def test_reflection_describes_the_services(home: Home, both_fronts: str) -> None:
    """Grpcurl and others can list and describe what grpcio serves; the front says cleanly that it doesn't."""
    async with running(home.folder, home.registry_address) as worker:

        def names() -> list[str]:
            with grpc.insecure_channel(worker.address) as channel:
                return list(ProtoReflectionDescriptorDatabase(channel).get_services())

        if both_fronts == "auto":
            with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                await asyncio.to_thread(names)
            return
        assert set(await asyncio.to_thread(names)) >= {
            "inference.GRPCInferenceService",
            "inferplane.oip.v1.RestInferenceService",
            "grpc.health.v1.Health",
        }
