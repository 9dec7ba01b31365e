"""Routing through a real Envoy: by the model in the body, with the headers that a worker believes."""

import asyncio
import json
from typing import Any

import grpc
import pytest
from inference import open_inference_pb2 as oip

from services.router.domain.topology import Endpoint, Target
from services.rpc.names import EndpointName
from tests.integration.router.edge import DIGITS, V1, V2, EdgeUnderTest


async def two_versions(edge: EdgeUnderTest, **fields: Any) -> None:
    one = await edge.add_worker("one", V1)
    two = await edge.add_worker("two", V2, unix=False)
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 90), Target(V2, 10)), **fields))
    edge.set_workers({one.address: {V1}, two.address: {V2}})
    await edge.in_sync()


async def test_calls_reach_the_version_with_its_headers(edge: EdgeUnderTest) -> None:
    """A pinned version is reached over unix and TCP sockets, and the worker is told endpoint and version."""
    await two_versions(edge)
    for version in (V1, V2):
        response = await edge.infer(version=version.version)
        assert response.model_version == str(version)
        assert response.parameters["endpoint"].string_param == "digits"


async def test_one_worker_serves_two_versions(edge: EdgeUnderTest) -> None:
    """The same host in two clusters gets each call with the version of the cluster that it came through."""
    worker = await edge.add_worker("both", V1, V2)
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1), Target(V2, 1))))
    edge.set_workers({worker.address: {V1, V2}})
    await edge.in_sync()
    for version in (V1, V2):
        assert (await edge.infer(version=version.version)).model_version == str(version)
    for _ in range(20):
        await edge.infer()
    assert set(worker.calls) == {str(V1), str(V2)}


async def test_spoofed_headers_are_stripped(edge: EdgeUnderTest) -> None:
    """What only the edge may say never comes from a client; other headers pass."""
    await two_versions(edge)
    spoofed = (
        ("x-inferplane-version", "models/secret/versions/1"),
        ("x-inferplane-endpoint", "secret"),
        ("x-inferplane-anything", "1"),
        ("x-inferplane-project", "somebody-else"),
        ("x-model", "secret"),
        ("x-gateway-destination-endpoint", "10.0.0.1:1"),
        ("x-envoy-original-path", "/v2"),
        ("x-mine", "stays"),
    )
    response = await edge.infer(version="1", metadata=spoofed)
    assert response.parameters["endpoint"].string_param == "digits"
    headers = edge.workers[0].headers
    assert headers["x-inferplane-version"] == str(V1)
    assert headers["x-mine"] == "stays"
    hidden = {"x-inferplane-anything", "x-inferplane-project", "x-model"}
    assert not (hidden | {"x-gateway-destination-endpoint"}) & set(headers)
    _, _, body = await edge.http(
        "POST", "/v2/models/digits/versions/1/infer", b"{}", {"x-inferplane-version": "evil"}
    )
    assert b'"version": "models/digits/versions/1"' in body


async def test_clients_cannot_steer_the_edge(edge: EdgeUnderTest) -> None:
    """Envoy's own control headers from a client set neither timeouts nor retries."""
    await two_versions(edge)
    edge.workers[0].delay = 0.1
    steering = (("x-envoy-upstream-rq-timeout-ms", "1"), ("x-envoy-max-retries", "0"))
    assert (await edge.infer(version="1", metadata=steering)).model_version == str(V1)


async def test_model_ready_is_routed_by_its_own_fields(edge: EdgeUnderTest) -> None:
    """ModelReady names the endpoint in `name` and the version in `version`."""
    await two_versions(edge)
    request = oip.ModelReadyRequest(name="digits", version="2")
    assert (await edge.stub.ModelReady(request, timeout=20)).ready
    assert edge.workers[1].calls[str(V2)] == 1
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await edge.stub.ModelReady(oip.ModelReadyRequest(name="nope"), timeout=20)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


async def test_server_calls_reach_any_worker(edge: EdgeUnderTest) -> None:
    """ServerLive and the REST health paths need no endpoint."""
    await two_versions(edge)
    assert (await edge.stub.ServerLive(oip.ServerLiveRequest(), timeout=20)).live
    status, _, body = await edge.http("GET", "/v2/health/ready")
    assert (status, body) == (200, b'{"ready": true}')


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        pytest.param("nope", "", "endpoint 'nope' does not exist", id="unknown-endpoint"),
        pytest.param("", "", "endpoint '' does not exist", id="no-endpoint"),
        pytest.param(
            "digits",
            "9",
            "endpoint 'digits' does not exist or sends no traffic to its version 9",
            id="not-a-target",
        ),
        pytest.param("digits@1", "", "endpoint 'digits@1' does not exist", id="pin-in-the-name"),
        pytest.param("../x", "", "endpoint '../x' does not exist", id="dots"),
        pytest.param("a\x00b", "", "endpoint 'a\x00b' does not exist", id="nul"),
        pytest.param("x" * 300, "", f"endpoint '{'x' * 80}' does not exist", id="300-characters"),
    ],
)
async def test_unknown_names_are_not_found(
    edge: EdgeUnderTest, name: str, version: str, text: str
) -> None:
    """A name that is no endpoint, or a version that is no target of it, is NOT_FOUND and named in the message."""
    await two_versions(edge)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await edge.infer(name, version)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert raised.value.details() == text


async def test_unknown_method_is_unimplemented(edge: EdgeUnderTest) -> None:
    """A method that nobody serves is UNIMPLEMENTED, as gRPC clients expect."""
    await two_versions(edge)
    call: Any = edge.channel.unary_unary("/no.Such/Method")
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call(b"", timeout=20)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_split_is_as_declared(edge: EdgeUnderTest) -> None:
    """2,000 calls at 90/10 land within 3 points."""
    await two_versions(edge)
    for _ in range(40):
        await asyncio.gather(*(edge.infer() for _ in range(50)))
    share = edge.workers[1].calls[str(V2)] / 2000
    assert 0.07 <= share <= 0.13


async def test_sticky_callers_stay_while_a_weight_grows(edge: EdgeUnderTest) -> None:
    """1. Each user has one side. 2. At 10 → 30 % nobody leaves the growing side. 3. Some join it."""
    await two_versions(edge, sticky_header="x-user")
    users = [f"user-{i}" for i in range(200)]

    async def side(user: str) -> str:
        metadata = (("x-user", user),)
        answers = {(await edge.infer(metadata=metadata)).model_version for _ in range(3)}
        assert len(answers) == 1
        return str(answers.pop())

    before = {user: await side(user) for user in users}
    targets = (Target(V1, 70), Target(V2, 30))
    edge.set_endpoint(Endpoint(name=DIGITS, targets=targets, sticky_header="x-user"))
    await edge.in_sync()
    after = {user: await side(user) for user in users}
    left = [u for u in users if before[u] == str(V2) != after[u]]
    joined = [u for u in users if before[u] == str(V1) != after[u]]
    assert left == []
    assert joined


async def test_a_thousand_endpoints_are_routed(edge: EdgeUnderTest) -> None:
    """The route map holds a thousand endpoints, and each is found."""
    worker = await edge.add_worker("w", V1)
    for number in range(1000):
        name = EndpointName(f"e{number}")
        edge.set_endpoint(Endpoint(name=name, targets=(Target(V1, 1),)))
    edge.set_workers({worker.address: {V1}})
    await edge.in_sync()
    for asked in ("e0", "e500", "e999"):
        assert (await edge.infer(asked)).parameters["endpoint"].string_param == asked


async def test_management_calls_go_to_the_router_and_discovery_is_closed_to_writers(
    edge: EdgeUnderTest,
) -> None:
    """The router's own API is served at the edge; registering workers is not."""
    from inferplane.discovery.v1 import discovery_service_pb2 as discovery
    from inferplane.discovery.v1.discovery_service_pb2_grpc import DiscoveryServiceStub
    from inferplane.router.v1 import router_service_pb2
    from inferplane.router.v1.router_service_pb2_grpc import RouterServiceStub

    await two_versions(edge)
    status = await RouterServiceStub(edge.channel).GetStatus(
        router_service_pb2.GetStatusRequest(), timeout=20
    )
    assert status.envoys[0].node_id == "edge-1"
    assert status.envoys[0].in_sync
    assert [t.effective_share for t in status.endpoints[0].targets] == [0.9, 0.1]
    stub: Any = DiscoveryServiceStub(edge.channel)
    for call, request in (
        (stub.RegisterWorker, discovery.RegisterWorkerRequest()),
        (stub.DeregisterWorker, discovery.DeregisterWorkerRequest()),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(request, timeout=20)
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_reflection_describes_the_edge(edge: EdgeUnderTest) -> None:
    """Reflection lists inference and management alike, without a worker."""
    from grpc_reflection.v1alpha import reflection_pb2
    from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

    edge.set_workers({})
    await edge.in_sync()
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    call = ServerReflectionStub(edge.channel).ServerReflectionInfo(iter([request]), timeout=20)
    response = await call.read()
    names = {service.name for service in response.list_services_response.service}
    assert {
        "inference.GRPCInferenceService",
        "inferplane.registry.v1.ModelService",
        "inferplane.router.v1.RouterService",
    } <= names


async def test_statistics_of_an_endpoint_or_of_a_worker(edge: EdgeUnderTest) -> None:
    """With a name the call goes where an inference would, without one to any worker, with an unknown one nowhere."""
    await two_versions(edge)

    async def over_grpc(name: str = "", version: str = "") -> list[tuple[str, str]]:
        request = oip.ModelStatisticsRequest(name=name, version=version)
        answer = await edge.stub.ModelStatistics(request, timeout=30)
        return [(said.name, said.version) for said in answer.model_stats]

    async def over_rest(path: str) -> tuple[int, Any]:
        status, _, body = await edge.http("GET", f"/v2/models/{path}")
        return status, json.loads(body)

    assert await over_grpc("digits", "2") == [("digits", str(V2))]
    assert await over_grpc() == [("", "")]
    assert await over_rest("digits/versions/1/stats") == (
        200,
        {"name": "digits", "version": str(V1)},
    )
    assert (await over_rest("digits/stats"))[1]["version"] in (str(V1), str(V2))
    assert await over_rest("stats") == (200, {"name": "", "version": ""})
    assert (await over_rest("nobody/stats"))[0] == 404
    with pytest.raises(grpc.aio.AioRpcError, match="'nobody' does not exist"):
        await over_grpc("nobody")
