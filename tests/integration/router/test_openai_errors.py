"""What OpenAI's clients are told when something is wrong, by the edge and by a worker: always their own shape."""

import json
from typing import Any

import openai
import pytest

from services.rpc.errors import ResourceExhaustedError
from tests.integration.router.edge import EdgeUnderTest
from tests.text_worker import CONTEXT, TextWorker

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


def body(**fields: Any) -> bytes:
    said = {"model": "chat", "messages": HI, "max_tokens": 4, "temperature": 0} | fields
    return json.dumps({key: value for key, value in said.items() if value is not ...}).encode()


async def refused(edge: EdgeUnderTest, path: str, sent: bytes) -> tuple[int, dict[str, Any]]:
    """Status and error object of a call that must fail; its shape is OpenAI's and nothing of gRPC shows."""
    status, headers, answer = await edge.http("POST", path, sent)
    assert headers["content-type"] == "application/json"
    assert not {"grpc-status", "grpc-message", "x-inferplane-error"} & headers.keys()
    said = json.loads(answer)
    assert said.keys() == {"error"}
    assert said["error"].keys() == {"message", "type", "param", "code"}
    return status, said["error"]


_BY_THE_EDGE = [
    pytest.param(b"{", 400, "not valid JSON", None, id="no JSON"),
    pytest.param(b"", 400, "must name an endpoint", None, id="nothing"),
    pytest.param(b"[1]", 400, "must name an endpoint", None, id="no object"),
    pytest.param(body(model=...), 400, "must name an endpoint", None, id="no model"),
    pytest.param(body(model=None), 400, "must name an endpoint", None, id="null"),
    pytest.param(body(model={"a": 1}), 400, "must name an endpoint", None, id="object"),
    pytest.param(body(model=""), 400, "must name an endpoint", None, id="empty"),
    pytest.param(body(model="nope"), 404, "'nope'", "model_not_found", id="unknown"),
    pytest.param(body(model="chat@9"), 404, "'chat@9'", "model_not_found", id="version"),
    pytest.param(body(model='a"\n\\b'), 404, 'a"\n\\b', "model_not_found", id="quotes"),
    pytest.param(body(model=5), 404, "'5'", "model_not_found", id="number"),
    pytest.param(body(model="digits"), 400, "not a language model", None, id="tensors"),
    pytest.param(
        b'{"model": "chat", "model": "nope"}', 404, "'nope'", "model_not_found", id="twice"
    ),
]


async def test_what_the_edge_refuses(text_edge: EdgeUnderTest) -> None:
    """Where no endpoint is named that writes text, no worker is asked."""
    for case in _BY_THE_EDGE:
        sent, status, words, code = case.values
        got, error = await refused(text_edge, CHAT, sent)  # type: ignore[arg-type] # pytest knows of objects only
        assert got == status, case.id
        assert str(words) in error["message"], case.id
        assert (error["type"], error["code"]) == ("invalid_request_error", code), case.id


_BY_A_WORKER = [
    pytest.param({"messages": ...}, "messages", "missing", id="no messages"),
    pytest.param({"messages": []}, "messages", "empty", id="empty messages"),
    pytest.param({"messages": "hi"}, "messages", "a list", id="messages as text"),
    pytest.param({"messages": ["hi"]}, "messages[0]", "an object", id="message as text"),
    pytest.param(
        {"messages": [{"role": "user"}]}, "messages[0].content", "missing", id="no content"
    ),
    pytest.param({"messages": [{"content": "x"}]}, "messages[0].role", "missing", id="no role"),
    pytest.param(
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0].type",
        "not supported",
        id="image",
    ),
    pytest.param({"temperature": 3}, "temperature", "0 to 2", id="temperature"),
    pytest.param({"stream": "yes"}, "stream", "true or false", id="stream as text"),
    pytest.param({"tools": [{"type": "function"}]}, "tools", "not supported", id="tools"),
    pytest.param(
        {"response_format": {"type": "json_schema"}},
        "response_format.type",
        "text",
        id="json schema",
    ),
    pytest.param({"audio": {"voice": "x"}}, "audio", "not supported", id="audio"),
]


async def test_what_a_worker_refuses(text_edge: EdgeUnderTest) -> None:
    """The field is named, streamed or not."""
    for case in _BY_A_WORKER:
        fields, param, words = case.values
        for stream in (False, True):
            sent = body(**({"stream": stream} | fields))  # type: ignore[operator] # as above
            got, error = await refused(text_edge, CHAT, sent)
            assert got == 400, case.id
            assert (error["type"], error["param"]) == ("invalid_request_error", param), case.id
            assert str(words) in error["message"], case.id


async def test_fields_that_nobody_knows_are_passed_over(text_edge: EdgeUnderTest) -> None:
    """As are those that change nothing, and `null` everywhere."""
    fields = {"user": "u", "store": False, "metadata": {}, "service_tier": "auto", "xyz": [1]}
    nulls = dict.fromkeys(("n", "stop", "seed", "tools", "logprobs", "response_format"))
    status, _, answer = await text_edge.http("POST", CHAT, body(**fields, **nulls))
    assert (status, json.loads(answer)["object"]) == (200, "chat.completion")


async def test_too_long_for_the_context(text_edge: EdgeUnderTest) -> None:
    """The code that clients look for, and both numbers."""
    got, error = await refused(text_edge, CHAT, body(max_tokens=CONTEXT))
    assert got == 400
    assert error["code"] == "context_length_exceeded"
    assert str(CONTEXT) in error["message"]


async def test_unknown_paths_and_methods(text_edge: EdgeUnderTest) -> None:
    """Also in OpenAI's shape."""
    for path in ("/v1/embeddings", "/v1/chat", "/v1/"):
        got, error = await refused(text_edge, path, body())
        assert (got, error["code"]) == (404, "unknown_url")


async def test_too_large_a_body(text_edge: EdgeUnderTest) -> None:
    """413, naming the limit; what is a little smaller is a worker's to judge."""
    limit = 4 << 20
    for size in (limit, 32 << 20):
        sent = body(messages=[{"role": "user", "content": "x" * size}])
        got, error = await refused(text_edge, CHAT, sent)
        assert (got, error["code"]) == (413, "request_too_large")
        assert str(limit) in error["message"]
    sent = body(messages=[{"role": "user", "content": "x" * (limit - 1024)}])
    got, error = await refused(text_edge, CHAT, sent)
    assert (got, error["code"]) == (400, "context_length_exceeded")


async def test_no_worker(text_edge: EdgeUnderTest) -> None:
    """503, and nothing of connections."""
    text_edge.set_workers({})
    await text_edge.in_sync()
    got, error = await refused(text_edge, CHAT, body())
    assert (got, error["type"], error["code"]) == (503, "server_error", "unavailable")
    assert "'chat'" in error["message"]


async def test_a_full_queue(text_edge: EdgeUnderTest, text_worker: TextWorker) -> None:
    """429 with the time to wait, which OpenAI's client honours."""

    def full(*_: object) -> None:
        raise ResourceExhaustedError("too much waits", reason="QUEUE_FULL", retry_after=1.5)

    text_worker.engine.submit = full  # type: ignore[method-assign,assignment] # as it says when full
    status, headers, answer = await text_edge.http("POST", CHAT, body(stream=True))
    assert (status, headers["retry-after"]) == (429, "2")
    assert json.loads(answer)["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_runner_that_fails(
    text_edge: EdgeUnderTest, text_worker: TextWorker, *, stream: bool
) -> None:
    """Before the first token it is a 500; later the stream ends with an event that says so, and without `[DONE]`."""
    text_worker.runner.fail_steps = {1, 4}
    got, error = await refused(text_edge, CHAT, body(stream=stream))
    assert (got, error["type"]) == (500, "server_error")
    if stream:
        status, _, answer = await text_edge.http("POST", CHAT, body(stream=True, max_tokens=20))
        assert status == 200
        *events, last, end = answer.decode().split("\n\n")
        assert events
        assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
        assert end == ""
    else:
        got, error = await refused(text_edge, CHAT, body(max_tokens=20))
        assert (got, error["type"]) == (500, "server_error")


async def test_the_client_knows_these_errors(text_edge: EdgeUnderTest) -> None:
    """As its own exceptions, with code and field."""
    url = f"http://{text_edge.settings.address}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="nope", messages=HI)  # type: ignore[arg-type]
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as wrong:
            await client.chat.completions.create(model="chat", messages=HI, temperature=5)  # type: ignore[arg-type]
        assert wrong.value.param == "temperature"
