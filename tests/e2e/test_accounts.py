"""Who calls, how much they may, what it cost: a whole mesh, its command line, and callers by every protocol."""

import json
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import duckdb
import grpc
import openai
import pytest
from inference import open_inference_pb2_grpc as oip_grpc

from services.cli.demo import digits
from tests.e2e.mesh import Mesh, eventually
from tests.e2e.oip_calls import raw_request

_PATIENCE = 150  # seconds until a report must tell what was done


@pytest.fixture(scope="module")
def token(text_mesh: Mesh) -> str:
    """A caller's key of the project `shop`, for the two endpoints that the tests call."""
    text_mesh.cli("projects", "create", "shop", "--tag", "team=sales")
    return _key(text_mesh, "shop", "digits", "smollm2")


def _key(mesh: Mesh, project: str, *endpoints: str) -> str:
    named = [part for endpoint in endpoints for part in ("--endpoint", endpoint)]
    return mesh.cli("keys", "create", "--project", project, *named, "-q").stdout.strip()


def _by_grpc(mesh: Mesh, token: str, endpoint: str = "digits") -> str:
    """One image by gRPC; the call's status."""
    request = raw_request(
        endpoint, "FP32", [1, 64], digits.load().held_out_images[0].tobytes(), "image"
    )
    with mesh.channel(token) as channel:
        try:
            oip_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def _by_rest(mesh: Mesh, token: str, path: str, body: dict[str, Any]) -> tuple[int, Any, Any]:
    """One call by HTTP: status, answer, headers."""
    call = Request(
        f"http://{mesh.address}{path}",
        json.dumps(body).encode(),
        {"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    try:
        with urlopen(call, timeout=60) as answer:
            return answer.status, json.loads(answer.read()), answer.headers
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), error.headers


def _image() -> dict[str, Any]:
    data = digits.load().held_out_images[0].tolist()
    return {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 64], "data": data}]}


def _chat(tokens: int = 5) -> dict[str, Any]:
    said = [{"role": "user", "content": "What is 2 plus 2?"}]
    return {"model": "smollm2", "messages": said, "max_tokens": tokens, "temperature": 0}


def _lines(mesh: Mesh, *words: str) -> dict[str, dict[str, Any]]:
    """A report's lines by their first value."""
    report = mesh.json("usage", *words)
    return {line["values"][0]: line["sums"] for line in report["lines"]}


def _told(mesh: Mesh, holds: Callable[[], bool], what: str) -> None:
    eventually(holds, seconds=_PATIENCE, what=what)


def test_a_key_opens_its_endpoints_and_all_is_counted(text_mesh: Mesh, token: str) -> None:
    """By gRPC, REST and OpenAI's API; another endpoint is refused; usage then has these calls and no other.

    1. Two images by gRPC, one by REST, one question: answered. An endpoint that the key is not for: refused.
    2. The report by endpoint has three and one requests, and the tokens that the answer told.
    3. By project and tag it is the same; one request is found by the id that its answer had.
    4. The export has four lines, as DuckDB reads it; the ledger adds up.
    """
    text_mesh.cli("prices", "set", "request", "0.5", "--model", "digits", "--project", "shop")
    assert [_by_grpc(text_mesh, token) for _ in range(2)] == ["OK", "OK"]
    status, _, headers = _by_rest(text_mesh, token, "/v2/models/digits/infer", _image())
    assert status == 200
    with openai.OpenAI(
        base_url=f"http://{text_mesh.address}/v1", api_key=token, max_retries=0, timeout=60
    ) as client:
        answer = client.chat.completions.create(**_chat())
    assert answer.usage is not None
    assert _by_grpc(text_mesh, token, "fp32") == "PERMISSION_DENIED"

    of_shop = ("--project", "shop", "--by")
    _told(
        text_mesh,
        lambda: int(text_mesh.json("usage", *of_shop, "project")["total"]["requests"]) >= 4,
        "four requests are counted",
    )
    by_endpoint = _lines(text_mesh, *of_shop, "endpoint")
    assert {name: int(sums["requests"]) for name, sums in by_endpoint.items()} == {
        "digits": 3,
        "smollm2": 1,
    }
    text, images = by_endpoint["smollm2"], by_endpoint["digits"]
    assert int(text["input_tokens"]) == answer.usage.prompt_tokens
    assert int(text["output_tokens"]) == answer.usage.completion_tokens
    assert (int(images["rows"]), float(images["charged"])) == (3, 1.5)
    assert images["ok"] == "3"
    assert _lines(text_mesh, *of_shop, "tag:team")["sales"]["requests"] == "4"
    (found,) = text_mesh.json("usage", "request", headers["x-request-id"])["requests"]
    assert (found["subject"]["endpoint"], found["sums"]["charged"]) == ("digits", "0.5")
    _check_export(text_mesh)


def _check_export(mesh: Mesh) -> None:
    file = mesh.state_dir.with_name("shop.parquet")
    words = ("--format", "parquet", "--project", "shop", "--file", str(file))
    mesh.cli("usage", "export", *words)
    with duckdb.connect() as database:
        lines = database.execute(f"SELECT count(*) FROM '{file}'").fetchone()
    assert lines == (4,)
    assert mesh.json("ledger", "verify")["ok"]


def test_a_revoked_key_is_refused_everywhere(text_mesh: Mesh) -> None:
    """By gRPC, REST and OpenAI's API, each in its own shape, once the revocation is known at the edge."""
    token = _key(text_mesh, "default", "*")
    assert _by_grpc(text_mesh, token) == "OK"
    (key,) = (k for k in text_mesh.json("keys", "list")[-1:])
    text_mesh.cli("keys", "revoke", key["name"])
    _told(text_mesh, lambda: _by_grpc(text_mesh, token) == "UNAUTHENTICATED", "it is refused")
    status, answer, _ = _by_rest(text_mesh, token, "/v2/models/digits/infer", _image())
    assert (status, "revoked" in answer["error"]) == (401, True)
    status, answer, _ = _by_rest(text_mesh, token, "/v1/chat/completions", _chat())
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


def test_a_budget_that_is_used_up_says_when_it_begins_anew(text_mesh: Mesh) -> None:
    """Two requests a day: the third is refused by every protocol, with the budget's name and its time; none is charged.

    `budget get` then tells that nothing is left and how many were refused.
    """
    text_mesh.cli("projects", "create", "frugal")
    token = _key(text_mesh, "frugal", "digits", "smollm2")
    text_mesh.cli("budget", "set", "frugal/few", "--requests", "2", "--per", "day")
    assert [_by_grpc(text_mesh, token) for _ in range(3)] == ["OK", "OK", "RESOURCE_EXHAUSTED"]
    status, answer, headers = _by_rest(text_mesh, token, "/v2/models/digits/infer", _image())
    assert (status, "few" in answer["error"]) == (429, True)
    assert 0 < int(headers["retry-after"]) <= 86_400
    status, answer, headers = _by_rest(text_mesh, token, "/v1/chat/completions", _chat())
    assert (status, "few" in answer["error"]["message"]) == (429, True)
    _told(
        text_mesh,
        lambda: int(text_mesh.json("budget", "get", "frugal/few")["status"]["refused"]) >= 3,
        "the refusals are counted",
    )
    stands = text_mesh.json("budget", "get", "frugal/few")["status"]
    assert (float(stands["used"]), float(stands["remaining"])) == (2, 0)
    _told(
        text_mesh,
        lambda: text_mesh.json("usage", "--project", "frugal")["total"]["requests"] == "2",
        "two requests are counted",
    )
    text_mesh.cli("budget", "delete", "frugal/few")
    _told(text_mesh, lambda: _by_grpc(text_mesh, token) == "OK", "calls go on without it")
