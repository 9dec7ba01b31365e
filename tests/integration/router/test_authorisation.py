"""What callers may do: every method and path by every role, and which endpoints their keys are for."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from inference import open_inference_pb2 as oip

from services.native_library import EDGE
from services.router.domain.policy import RevocationChange
from services.router.domain.topology import Endpoint, Mirror, Target
from services.router.resources import access, methods
from services.router.resources.access import Access
from tests.integration.router import keys
from tests.integration.router.edge import DIGITS, V1, V2, EdgeUnderTest
from tests.integration.router.keys import answer, bearer, head, reason
from tests.integration.router.waiting import until
from tests.metering_keys import KeyMint
from tests.rest_calls import rest_calls

ROLES = ("caller", "viewer", "deployer", "admin")
_WITH_AND_WITHOUT = [
    pytest.param(True, marks=pytest.mark.skipif(EDGE.find() is None, reason="no module")),
    False,
]


@pytest.fixture
def mint() -> KeyMint:
    """Signs tokens."""
    return KeyMint()


@pytest.fixture
async def edge(folder: Path, mint: KeyMint) -> AsyncIterator[EdgeUnderTest]:
    """Asks for keys of the mint; registry and metering are not there."""
    metering = f"unix:{folder}/metering.sock"
    edge = await keys.start(folder, mint, metering_address=metering)
    yield edge
    await edge.stop()


@pytest.fixture(params=_WITH_AND_WITHOUT, ids=["module", "no module"])
async def either(
    folder: Path, mint: KeyMint, request: pytest.FixtureRequest
) -> AsyncIterator[EdgeUnderTest]:
    """The same with our module and without it: both read endpoints from messages."""
    edge = await keys.start(folder, mint, has_module=request.param)
    yield edge
    await edge.stop()


async def call(edge: EdgeUnderTest, path: str, token: str | None) -> str:
    """How a call without content begins to be answered: OK, or code and reason."""
    metadata = bearer(token) if token is not None else ()
    method: Any = edge.channel.unary_stream(path)
    stream = method(b"", metadata=metadata, timeout=60)
    try:
        await stream.read()
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name} {reason(error)}".strip()
    finally:
        stream.cancel()
    return "OK"


async def test_every_method_by_every_role(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Without a key nothing; with one what the role may, and no more; what is not listed, nobody."""
    tokens = {role: mint.token(role=role) for role in (*ROLES, "Admin", "root", "")}
    wrong = []
    for path, who in access.table().items():
        if (got := await call(edge, path, None)) != "UNAUTHENTICATED API_KEY_MISSING":
            wrong.append(f"{path} without a key: {got}")
        for role, token in tokens.items():
            got = await call(edge, path, token)
            refused = got.startswith(("PERMISSION_DENIED ROLE", "PERMISSION_DENIED METHOD"))
            if refused == (role in who.roles()):
                wrong.append(f"{path} as {role}: {got}")
    assert wrong == []


_NOT_HERE = (
    "/inferplane.registry.v1.ModelService/Anything",
    "/inferplane.metering.v1.NewService/Get",
    "/inferplane.metering.v1.UsageService/RecordUsage",
    "/inferplane.metering.v1.PolicyService/WatchPolicy",
    "/inferplane.metering.v1.LeaseService/ExchangeLeases",
    "/inferplane.discovery.v1.DiscoveryService/RegisterWorker",
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
    "/grpc.health.v1.Health/Anything",
    "/inference.GRPCInferenceService/ModelInfer/",
    "/inference.GRPCInferenceService/modelinfer",
    "/inference.GRPCInferenceService/ModelInfer?a=b",
    "/",
)


async def test_what_is_not_for_the_edge(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Not even an admin gets through to what services call among themselves, or to what nobody knows."""
    allowed = ("PERMISSION_DENIED METHOD_INTERNAL", "UNIMPLEMENTED NO_SUCH_METHOD")
    token = mint.token(role="admin")
    got = {path: await call(edge, path, token) for path in _NOT_HERE}
    assert {path: how for path, how in got.items() if how not in allowed} == {}


async def test_without_keys_the_edge_is_still_no_way_to_the_services(folder: Path) -> None:
    """An edge that asks nobody for a key lets nobody into what services call among themselves either."""
    edge = await EdgeUnderTest.start(folder)
    try:
        edge.set_workers({})
        await edge.in_sync()
        for path, who in access.table().items():
            if who is Access.NOBODY:
                assert (await call(edge, path, None)).startswith("PERMISSION_DENIED"), path
        assert (await call(edge, "/inferplane.metering.v1.NewService/Get", None)).startswith(
            "PERMISSION_DENIED"
        )
    finally:
        await edge.stop()


async def test_every_path_by_every_role(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """The same for REST and OpenAI's paths."""
    tokens = {role: mint.token(role=role) for role in (*ROLES, "nobody")}
    wrong = []
    for verb, path, who in rest_calls():
        body = b'{"model": "digits"}' if verb == "POST" else b""
        status, _, _ = await edge.http(verb, path, body)
        if status != 401:
            wrong.append(f"{verb} {path} without a key: {status}")
        for role, token in tokens.items():
            status, _, _ = await edge.http(verb, path, body, head(token))
            if (status == 403) == (role in who.roles()):
                wrong.append(f"{verb} {path} as {role}: {status}")
    assert wrong == []


async def test_the_wrong_role_is_told_in_each_protocol(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """GRPC with details, REST and OpenAI with their bodies."""
    token = mint.token(role="caller")
    got = await call(edge, "/inferplane.registry.v1.ModelService/CreateModel", token)
    assert got == "PERMISSION_DENIED ROLE_NOT_ALLOWED"
    _, _, body = await edge.http("POST", "/v2/repository/index", b"{}", head(token))
    assert json.loads(body) == {"error": "the API key's role 'caller' may not call this method"}
    token = mint.token(endpoints=["digits"])
    body = b'{"model": "other"}'
    status, _, answered = await edge.http("POST", "/v1/completions", body, head(token))
    assert status == 403
    error = json.loads(answered)["error"]
    assert error["code"] == "permission_denied"
    assert error["message"] == "the API key is not for endpoint 'other'"


DENIED = "PERMISSION_DENIED ENDPOINT_NOT_ALLOWED"


async def test_endpoints(either: EdgeUnderTest, mint: KeyMint) -> None:
    """A key is for the endpoints that it names: for their versions too, not for others, whether they exist or not."""
    token = mint.token(endpoints=["digits", "gone"])
    assert await answer(either, token) == "OK"
    assert await answer(either, token, version="1") == "OK"
    for name in ("other", "missing", "digit", "digits2", "DIGITS", "*", "", "digits@1"):
        assert await answer(either, token, name) == DENIED, name
    assert await answer(either, token, version="7") == DENIED  # it gets no traffic
    everything = mint.token()
    assert await answer(either, everything, "other") == "OK"
    assert await answer(either, everything, "missing") == "NOT_FOUND "
    for endpoints in ([], None, "*x", ["**"], {"*": True}, [["*"]], [True], 1):
        assert await answer(either, mint.token(endpoints=endpoints)) == DENIED, endpoints
    for method in ("ModelReady", "ModelMetadata"):
        path, request = methods.path(f"{methods.OIP}.{method}"), b"\n\x05other"
        ask: Any = either.channel.unary_unary(path)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await ask(request, metadata=bearer(token))
        assert reason(raised.value) == "ENDPOINT_NOT_ALLOWED"


async def test_all_models_of_a_worker_are_for_keys_of_all_endpoints(
    edge: EdgeUnderTest, mint: KeyMint
) -> None:
    """Statistics without a name say something of every endpoint."""
    path = methods.path(f"{methods.OIP}.ModelStatistics")
    assert await call(edge, path, mint.token(role="viewer")) == "OK"
    assert await call(edge, path, mint.token(role="viewer", endpoints=["digits"])) == DENIED


ONE, TWO = b"\n\x06digits", b"\n\x05other"


_SAID_TWICE = (
    ONE + TWO,
    TWO,
    TWO + b"\x12\x01" + b"1",
    b"\x0a\x85\x00other",
    TWO + b"\x1a\x00",
)


async def test_messages_that_say_it_twice(either: EdgeUnderTest, mint: KeyMint) -> None:
    """The last name counts, for the key as for the worker."""
    metadata = bearer(mint.token(endpoints=["digits"]))
    infer: Any = either.channel.unary_unary(methods.path(f"{methods.OIP}.ModelInfer"))
    for message in _SAID_TWICE:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await infer(message, metadata=metadata, timeout=60)
        assert reason(raised.value) == "ENDPOINT_NOT_ALLOWED"
    told = await infer(TWO + ONE, metadata=metadata, timeout=60)
    answered = oip.ModelInferResponse.FromString(told)
    assert (answered.model_name, answered.model_version) == ("digits", str(V1))
    assert either.workers[0].calls[str(V2)] == 0


_ELSEWHERE = [
    ("/v2/models/other/infer", b'{"model": "digits", "model_name": "digits"}'),
    ("/v2/models/other/infer?model_name=digits", b"{}"),
    ("/v2/models/other/versions/1/infer", b"{}"),
    ("/v2/models/digits/../other/infer", b"{}"),
    ("/v2/models/digits/%2e%2e/other/infer", b"{}"),
    ("/v2/models/digits%2f..%2fother/infer", b"{}"),
    ("//v2//models//other//infer", b"{}"),
    ("/v2/models/%6fther/infer", b"{}"),
    ("/v2/models/other;digits/infer", b"{}"),
    ("/v1/completions", b'{"model": "digits", "model": "other"}'),
    ("/v1/completions", b'{"model": "digits", "mod\\u0065l": "other"}'),
    ("/v1/completions", b'{"model": "other@2"}'),
    ("/v1/completions", b'{"model": "other@"}'),
    ("/v1/completions?model=digits", b'{"model": "other"}'),
    ("/v1/../v1/completions", b'{"model": "other"}'),
]


async def test_paths_and_bodies_that_say_two_things(either: EdgeUnderTest, mint: KeyMint) -> None:
    """What is served is what the key is for, whatever else is said beside it."""
    headers = head(mint.token(endpoints=["digits"])) | {
        "x-model": "digits",
        "x-inferplane-endpoint": "digits",
        "x-inferplane-endpoints": '["*"]',
        "x-inferplane-role": "admin",
        "x-envoy-original-path": "/v2/models/digits/infer",
        "x-http-method-override": "GET",
    }
    for path, body in _ELSEWHERE:
        status, _, _ = await either.http("POST", path, body, headers)
        assert status in (400, 403, 404), (path, body)
    assert either.workers[0].calls.total() == 0
    # The same caller is let in where it says one thing.
    status, _, _ = await either.http("POST", "/v2/models/digits/infer", b"{}", headers)
    assert status == 200
    body = b'{"model": "digits"}'
    status, _, answered = await either.http("POST", "/v1/completions", body, headers)
    assert (status, b"is not a language model" in answered) == (400, True)


async def test_streams_are_let_in_by_their_first_message(
    edge: EdgeUnderTest, mint: KeyMint
) -> None:
    """One that begins with another endpoint is refused; workers look at each message that follows."""
    token = mint.token(endpoints=["digits"])

    async def first(name: str) -> str:
        stream = edge.stub.ModelStreamInfer(metadata=bearer(token), timeout=30)
        await stream.write(oip.ModelInferRequest(model_name=name))
        try:
            return str((await stream.read()).infer_response.model_version)
        except grpc.aio.AioRpcError as error:
            return reason(error)
        finally:
            stream.cancel()

    assert await first("digits") == str(V1)
    assert await first("other") == "ENDPOINT_NOT_ALLOWED"
    assert edge.workers[0].calls[str(V2)] == 0


async def test_streams_outlive_changes_of_the_policy(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """A stream that was let in goes on while keys are revoked and signing keys change; a new one is refused."""
    token = mint.token()
    stream = edge.stub.ModelStreamInfer(metadata=bearer(token), timeout=60)
    for i in range(20):
        await stream.write(oip.ModelInferRequest(model_name="digits", id=str(i)))
        assert (await stream.read()).infer_response.id == str(i)
        await keys.tell(
            edge, keys.signing(KeyMint()), RevocationChange(f"projects/a/keys/{i}", revoked=True)
        )
    stream.cancel()


async def test_mirrored_copies_are_marked(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """A worker hears which copy is a shadow; both have the one request id and the caller."""
    shadow = await edge.add_worker("shadow", V2)
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),), mirror=Mirror(V2, 100)))
    edge.set_workers({edge.workers[0].address: {V1}, shadow.address: {V2}})
    await edge.in_sync()
    assert await answer(edge, mint.token(jti="one")) == "OK"
    await until(lambda: shadow.calls.total() == 1)
    served, copy = edge.workers[0].headers, shadow.headers
    assert "x-inferplane-shadow" not in served
    assert copy["x-inferplane-shadow"] == "1"
    for name in ("x-request-id", "x-inferplane-project", "x-inferplane-key"):
        assert copy[name] == served[name]
    assert "authorization" not in copy


async def test_each_request_has_an_id_of_its_own(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Also those that claim another's; the answer says which."""
    metadata = (*bearer(mint.token()), ("x-request-id", "6f1f6c5e-3d2a-4a1b-9c3d-000000000000"))
    calls = [
        edge.stub.ModelInfer(oip.ModelInferRequest(model_name="digits"), metadata=metadata)
        for _ in range(5)
    ]
    ids = {dict(await one.initial_metadata())["x-request-id"] for one in calls}
    await asyncio.gather(*calls)
    assert len(ids) == 5
