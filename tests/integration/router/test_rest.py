"""REST through the transcoder: bodies, binary tensors, errors in the protocol's shape, odd paths."""

import json

import pytest

from services.router.domain.topology import Endpoint, Target
from services.rpc.errors import InferplaneError, ResourceExhaustedError, UnavailableError
from tests.integration.router.edge import DIGITS, V1, EdgeUnderTest


@pytest.fixture
async def rest(edge: EdgeUnderTest) -> EdgeUnderTest:
    """One endpoint, one worker."""
    worker = await edge.add_worker("w", V1)
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    edge.set_workers({worker.address: {V1}})
    await edge.in_sync()
    return edge


async def test_binary_tensors_pass_both_ways(rest: EdgeUnderTest) -> None:
    """Body, content type and the length header reach the worker; its bytes and header reach the client."""
    body = b'{"x": 1}' + bytes(range(256))
    status, headers, answer = await rest.http(
        "POST",
        "/v2/models/digits/infer",
        body,
        {"inference-header-content-length": "8", "content-type": "application/octet-stream"},
    )
    assert status == 200
    assert headers["inference-header-content-length"] == "7"
    assert headers["content-type"] == "application/octet-stream"
    text, _, rest_of_it = answer.partition(b"\n")
    seen = json.loads(text)
    assert (seen["size"], seen["json_bytes"], seen["type"]) == (
        264,
        "8",
        "application/octet-stream",
    )
    assert rest_of_it == b"\0\xff"


async def test_query_cannot_name_another_model(rest: EdgeUnderTest) -> None:
    """The path says which model and version; a query is ignored."""
    path = "/v2/models/digits/infer?model_name=other&model_version=9&unknown=1"
    status, _, answer = await rest.http("POST", path, b"{}")
    assert status == 200
    assert b'"pinned": ""' in answer


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(ResourceExhaustedError('queue "full"\n\\ é €'), 429, id="exhausted"),
        pytest.param(UnavailableError("100% busy %41"), 503, id="unavailable"),
    ],
)
async def test_worker_errors_have_the_protocols_body(
    rest: EdgeUnderTest, error: InferplaneError, status: int
) -> None:
    """A worker's gRPC status becomes the HTTP status and `{"error": text}`, exact to the character."""
    rest.workers[0].fail = lambda: error
    got, headers, answer = await rest.http("POST", "/v2/models/digits/infer", b"{}")
    assert got == status
    assert headers["content-type"] == "application/json"
    assert json.loads(answer) == {"error": error.message}
    assert "grpc-message" not in headers


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        pytest.param(
            "POST", "/v2/models/nope/infer", 404, "endpoint 'nope' does not exist", id="unknown"
        ),
        pytest.param(
            "POST",
            "/v2/models/%22a%0ab/infer",
            404,
            "endpoint '\"a\nb' does not exist",
            id="quotes-are-escaped",
        ),
        pytest.param("GET", "/v2/models/%2e%2e/infer", 404, "no such method", id="dots"),
        pytest.param("GET", "/v2/models/a%2Fb", 400, "escaped slashes", id="slash"),
        pytest.param("GET", "/v2/models/a%5Cb", 400, "escaped slashes", id="backslash"),
        pytest.param("GET", "/v2/models/a%00b", 400, "NUL", id="nul"),
        pytest.param("GET", "/v2/models/" + "x" * 300, 404, "does not exist", id="300-characters"),
        pytest.param("GET", "/v2/models/%ff", 404, "does not exist", id="not-utf-8"),
        pytest.param("GET", "/", 404, "no such method or path", id="root"),
        pytest.param("DELETE", "/v2/models/digits", 404, "no such method", id="wrong-method"),
    ],
)
async def test_odd_paths_are_refused_clearly(
    rest: EdgeUnderTest, method: str, path: str, status: int, text: str
) -> None:
    """Each gets a 4xx with the protocol's body, and Envoy lives on."""
    got, headers, answer = await rest.http(method, path)
    assert got == status
    assert headers["content-type"] == "application/json"
    assert text in json.loads(answer)["error"]
    assert (await rest.http("GET", "/v2/health/ready"))[0] == 200


async def test_no_worker_is_told_without_connection_details(rest: EdgeUnderTest) -> None:
    """A dead worker gives 503 and plain words; addresses and causes stay inside."""
    await rest.workers[0].server.stop(0)
    status, _, answer = await rest.http("POST", "/v2/models/digits/infer", b"{}")
    assert status == 503
    error = json.loads(answer)["error"]
    assert "'digits'" in error
    assert "connect" not in error
    assert "sock" not in error
