"""Triton's repository methods over a real server, by gRPC and as the edge's transcoder calls them; and tunings."""

import asyncio
import json
from typing import Any

import grpc
import pytest
from google.api.httpbody_pb2 import HttpBody
from inference import open_inference_pb2 as oip
from inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from inferplane.discovery.v1 import discovery_service_pb2, worker_pb2
from inferplane.oip.v1 import rest_service_pb2 as rest
from inferplane.oip.v1.rest_service_pb2_grpc import RestInferenceServiceStub
from inferplane.registry.v1 import endpoint_service_pb2, model_pb2, model_service_pb2
from inferplane.registry.v1 import placement_pb2 as placements

from tests.integration.registry.client import Client, file_of, refused
from tests.models import good


async def report(client: Client, state: int, reason: str = "") -> None:
    """A worker of the default pool with m@1 in this state; 0: without it."""
    worker = worker_pb2.Worker(name="workers/w", pool="default", address="unix:/run/w.sock")
    if state:
        held = worker.versions.add(version="models/m/versions/1", reason=reason)
        held.state = placements.LoadState.ValueType(state)
    request = discovery_service_pb2.RegisterWorkerRequest(worker=worker)
    await client.discovery.RegisterWorker(request)


async def test_by_grpc(client: Client) -> None:
    """Index, load, index, unload: a load ends when a worker has it, and the model's endpoint is there."""
    triton: Any = GRPCInferenceServiceStub(client.channel)
    await client.push("m@1")
    await report(client, 0)
    load = oip.RepositoryModelLoadRequest(model_name="m")
    loading = asyncio.ensure_future(triton.RepositoryModelLoad(load))
    async with asyncio.timeout(60):
        while True:
            index = (await triton.RepositoryIndex(oip.RepositoryIndexRequest())).models
            if index[0].state == "LOADING":
                break
    assert not loading.done()
    await report(client, placements.LOAD_STATE_READY)
    assert await loading == oip.RepositoryModelLoadResponse()
    (ready,) = (await triton.RepositoryIndex(oip.RepositoryIndexRequest(ready=True))).models
    assert (ready.name, ready.version, ready.state) == ("m", "1", "READY")
    get = endpoint_service_pb2.GetEndpointRequest(name="endpoints/m")
    endpoint = (await client.endpoints.GetEndpoint(get)).endpoint
    assert [target.target for target in endpoint.targets] == ["models/m/versions/1"]
    unload = oip.RepositoryModelUnloadRequest(model_name="m")
    unload.parameters["unload_dependents"].bool_param = False
    unloading = asyncio.ensure_future(triton.RepositoryModelUnload(unload))
    async with asyncio.timeout(60):
        while (await client.endpoints.ListEndpoints(_ALL)).endpoints:
            continue
    await report(client, 0)
    await unloading
    assert not (await triton.RepositoryIndex(oip.RepositoryIndexRequest(ready=True))).models


_ALL = endpoint_service_pb2.ListEndpointsRequest()


async def test_what_is_refused(client: Client) -> None:
    """Overrides, unknown models and failures say which, with field or reason."""
    triton: Any = GRPCInferenceServiceStub(client.channel)
    await client.push("m@1")
    load = oip.RepositoryModelLoadRequest(model_name="m")
    load.parameters["config"].string_param = "{}"
    load.parameters["file:1/model.onnx"].bytes_param = b"onnx"
    told = await refused(triton.RepositoryModelLoad(load))
    assert told.code is grpc.StatusCode.INVALID_ARGUMENT
    assert told.fields == ("parameters['config']", "parameters['file:1/model.onnx']")
    unknown = oip.RepositoryModelLoadRequest(model_name="nope")
    assert (await refused(triton.RepositoryModelLoad(unknown))).code is grpc.StatusCode.NOT_FOUND
    other = oip.RepositoryIndexRequest(repository_name="other")
    assert (await refused(triton.RepositoryIndex(other))).fields == ("repository_name",)
    await report(client, placements.LOAD_STATE_FAILED, "no kernel for it")
    failed = await refused(
        triton.RepositoryModelLoad(oip.RepositoryModelLoadRequest(model_name="m"))
    )
    assert (failed.code, failed.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "LOAD_FAILED")
    assert "failed to load m@1: no kernel for it" in failed.message
    elsewhere = await _code(triton.ModelInfer(oip.ModelInferRequest(model_name="m")))
    assert elsewhere is grpc.StatusCode.UNIMPLEMENTED  # workers have the rest of the service


async def _code(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code()


async def test_by_rest(client: Client) -> None:
    """Bodies are JSON in Triton's shapes: an array of versions, empty objects, parameters."""
    triton: Any = RestInferenceServiceStub(client.channel)
    await client.push("m@1")
    await report(client, placements.LOAD_STATE_READY)
    body = HttpBody(data=b'{"parameters": {"version": "1"}}')
    loaded = await triton.RepositoryModelLoad(
        rest.RepositoryModelLoadRequest(model_name="m", http_body=body)
    )
    assert (loaded.content_type, loaded.data) == ("application/json", b"{}")
    index = await triton.RepositoryIndex(rest.RepositoryIndexRequest())
    assert json.loads(index.data) == [{"name": "m", "version": "1", "state": "READY", "reason": ""}]
    await report(client, 0)
    unload = rest.RepositoryModelUnloadRequest(
        model_name="m", http_body=HttpBody(data=b'{"parameters": {"unload_dependents": false}}')
    )
    assert (await triton.RepositoryModelUnload(unload)).data == b"{}"
    ready = rest.RepositoryIndexRequest(http_body=HttpBody(data=b'{"ready": true}'))
    assert (await triton.RepositoryIndex(ready)).data == b"[]"
    wrong = rest.RepositoryIndexRequest(http_body=HttpBody(data=b"{"))
    assert (await refused(triton.RepositoryIndex(wrong))).fields == ("body",)


async def test_settings_and_tuning_of_a_version(client: Client) -> None:
    """Settings come back as they were declared; what doesn't fit the model is refused; a tuning comes and goes."""
    settings = model_pb2.VersionSettings(
        max_batch_size=8, batch_axis=model_pb2.BATCH_AXIS_FIRST, cpus=[0]
    )
    settings.padded_inputs.add(name="x", axis=1)
    declared = model_pb2.ModelVersion(
        format=model_pb2.FORMAT_ONNX,
        files=[file_of("model.onnx", _RAGGED)],
        settings=settings,
    )
    create = model_service_pb2.CreateModelVersionRequest(
        parent="models/m", version_id="1", model_version=declared
    )
    wrong = model_service_pb2.CreateModelVersionRequest()
    wrong.CopyFrom(create)
    wrong.model_version.settings.padded_inputs[0].axis = 2
    name = (await client.models.CreateModelVersion(wrong)).model_version.name
    await client.upload(name, "model.onnx", _RAGGED)
    told = await refused(client.finish(name))
    assert told.fields == ("settings.padded_inputs[0].axis",)
    await client.models.CreateModelVersion(create)
    version = await client.finish(name)
    assert version.settings == settings
    tune = model_service_pb2.SetModelVersionTuningRequest(name=name, only_if_unset=True)
    tune.tuning.MergeFrom(
        model_pb2.VersionTuning(
            intra_op_threads=1,
            instances=2,
            max_batch_size=8,
            rows_per_second=100,
            baseline_rows_per_second=50,
            machine_cpus=2,
        )
    )
    tuned = (await client.models.SetModelVersionTuning(tune)).model_version
    assert tuned.tuning.instances == 2
    assert tuned.tuning.measure_time.seconds
    assert tuned.etag != version.etag
    forget = model_service_pb2.SetModelVersionTuningRequest(name=name, measure=True)
    forgotten = (await client.models.SetModelVersionTuning(forget)).model_version
    assert not forgotten.HasField("tuning")
    assert forgotten.measuring_wanted


_RAGGED = good.identity("FP32", ("n", "length"))
