"""What a real worker counts and tells of it: Triton's statistics, metrics, times in answers, the response cache."""

import asyncio
import json
import urllib.request
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from inference import open_inference_pb2 as oip
from inferplane.oip.v1 import rest_service_pb2
from inferplane.registry.v1 import model_pb2

from services.rpc.tcp_ports import free_port
from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, output, request
from tests.integration.worker.worker_process import running
from tests.models import artifact, good

pytestmark = pytest.mark.usefixtures("both_fronts")

PLAIN, CACHED = "models/m/versions/1", "models/kept/versions/7"
X = np.ones((2, 4), np.float32)


async def ready(home: Home) -> None:
    graph = artifact.of_model(good.affine(2.0))
    kept = model_pb2.ResponseCacheSettings(max_bytes=1 << 20)
    await home.registry.put(PLAIN, graph)
    await home.registry.put(CACHED, graph, model_pb2.VersionSettings(response_cache=kept))
    for name in (PLAIN, CACHED):
        await home.registry.until_state(name, "READY")


def parameters(response: oip.ModelInferResponse) -> dict[str, Any]:
    return {
        k: getattr(p, str(p.WhichOneof("parameter_choice"))) for k, p in response.parameters.items()
    }


def asking(model: str, x: Any = X, **flags: bool) -> oip.ModelInferRequest:
    made = request(model, x=x)
    for name, value in flags.items():
        made.parameters[name].bool_param = value
    return made


async def test_statistics_cache_and_times(home: Home) -> None:
    """1. Times when asked. 2. A second equal request is a hit. 3. Statistics and metrics count exactly these."""
    port = free_port()
    where = {"metrics_address": f"127.0.0.1:{port}"}
    async with running(home.folder, home.registry_address, **where) as worker:
        await ready(home)
        client = Client(worker.channel)
        await see_times(client)
        await see_hits(client)
        with pytest.raises(grpc.aio.AioRpcError, match="allowed"):
            await client.infer("m", x=np.ones((2, 5), np.float32))
        await see_statistics(client)
        await see_metrics(port)
        await home.registry.remove(CACHED)
        await home.registry.until(
            lambda: all(len(w.versions) == 1 for w in home.registry.workers.values())
        )
        assert 'model="kept"' not in await scraped(port)
        with pytest.raises(grpc.aio.AioRpcError, match=r"RepositoryIndex: .* at the edge"):
            await client.oip.RepositoryIndex(oip.RepositoryIndexRequest())


async def see_times(client: Client) -> None:
    """Both protocols tell the same; who doesn't ask is told nothing. Three requests of two rows for `m`."""
    assert parameters(await client.infer("m", x=X)) == {}
    told = parameters(await client.oip.ModelInfer(asking("m", timing=True)))
    assert sorted(told) == ["batch_size", "compute_us", "queue_us"]
    assert told["batch_size"] == 2
    assert told["queue_us"] >= 0
    assert told["compute_us"] > 0
    said = rest_body(timing=True)
    answer, _, _ = await client.post("m", said)
    assert sorted(json.loads(answer)["parameters"]) == ["batch_size", "compute_us", "queue_us"]


async def see_hits(client: Client) -> None:
    """Computed: the first of each tenant, and those that are not to be stored. Seven requests, four computed."""
    first = await client.infer("kept", x=X)
    again = await client.infer("kept", x=X)
    assert (parameters(first), parameters(again)) == ({}, {"cache_hit": True})
    assert output(again).tolist() == output(first).tolist() == (2 * X).tolist()
    other = client.oip.ModelInfer(asking("kept"), metadata=(("x-inferplane-project", "p"),))
    assert parameters(await other) == {}
    assert parameters(await client.oip.ModelInfer(asking("kept", no_store=True))) == {}
    answer, _, _ = await client.post("kept", rest_body())
    assert json.loads(answer)["parameters"] == {"cache_hit": True}
    answer, _, _ = await client.post("kept", rest_body(), {"cache-control": "no-store"})
    assert "parameters" not in json.loads(answer)
    timed = parameters(await client.oip.ModelInfer(asking("kept", timing=True)))
    assert timed == {"cache_hit": True, "queue_us": 0, "compute_us": 0, "batch_size": 0}


def rest_body(**flags: bool) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": X.ravel().tolist()}
    return json.dumps({"inputs": [tensor], "parameters": flags}).encode()


async def see_statistics(client: Client) -> None:
    """By name, by name and version, of all; the message and the JSON say the same."""
    about = oip.ModelStatisticsRequest
    everything = await client.oip.ModelStatistics(about())
    assert [(s.name, s.version) for s in everything.model_stats] == [("kept", "7"), ("m", "1")]
    (plain,) = (await client.oip.ModelStatistics(about(name="m"))).model_stats
    (kept,) = (await client.oip.ModelStatistics(about(name="kept", version="7"))).model_stats
    assert (plain.inference_count, plain.execution_count) == (6, 3)
    assert (kept.inference_count, kept.execution_count) == (8, 4)
    of = plain.inference_stats
    assert (of.success.count, of.fail.count, of.queue.count) == (3, 1, 3)
    assert of.compute_infer.ns > 0
    assert of.success.ns > of.compute_infer.ns
    assert [(b.batch_size, b.compute_infer.count) for b in plain.batch_stats] == [(2, 3)]
    assert plain.last_inference > 1_600_000_000_000
    of = kept.inference_stats
    assert (of.success.count, of.cache_hit.count, of.cache_miss.count) == (7, 3, 2)
    assert of.cache_hit.ns > 0
    answer = await client.rest.ModelStatistics(
        rest_service_pb2.ModelStatisticsRequest(model_name="kept", model_version="7")
    )
    said = json.loads(answer.data)["model_stats"]
    message = MessageToDict(
        kept, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert said == [as_numbers(message)]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.oip.ModelStatistics(about(name="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def as_numbers(value: Any) -> Any:
    """A message as JSON has 64-bit numbers as text."""
    if isinstance(value, dict):
        return {k: v if k in ("name", "version") else as_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [as_numbers(item) for item in value]
    return int(value)


async def see_metrics(port: int) -> None:
    """Triton's names with its labels, beside ours."""
    text = await scraped(port)
    for line in (
        'nv_inference_request_success{model="m",version="1"} 3.0',
        'nv_inference_request_failure{model="m",reason="OTHER",version="1"} 1.0',
        'nv_inference_request_failure{model="m",reason="CANCELED",version="1"} 0.0',
        'nv_inference_count{model="m",version="1"} 6.0',
        'nv_inference_exec_count{model="kept",version="7"} 4.0',
        'nv_inference_pending_request_count{model="m",version="1"} 0.0',
        'nv_cache_num_hits_per_model{model="kept",version="7"} 3.0',
        'nv_cache_num_misses_per_model{model="kept",version="7"} 2.0',
        f'inferplane_cache_hits_total{{version="{CACHED}"}} 3.0',
    ):
        assert line in text
    for name in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
        assert f'nv_inference_{name}_duration_us{{model="m",version="1"}} ' in text


async def scraped(port: int) -> str:
    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return str(answer.read(), "utf-8")

    return await asyncio.to_thread(read)
