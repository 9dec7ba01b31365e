"""OpenAI's own client through a real Envoy and a real worker's front, with a scripted runner."""

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.integration.router.edge import EdgeUnderTest
from tests.unit.worker.llm.scripted_runner import continued, text_of

SAID = "<user>hi\n<assistant>"
# Behind the front alone: what differs behind grpcio is in test_text.py and test_openai_errors.py.
pytestmark = pytest.mark.parametrize("text_worker", ["auto"], indirect=True)


def client_of(edge: EdgeUnderTest) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"http://{edge.settings.address}/v1", api_key="none", max_retries=0, timeout=60
    )


@pytest.fixture
async def client(text_edge: EdgeUnderTest) -> Any:
    async with client_of(text_edge) as client:
        yield client


def chat(**fields: Any) -> dict[str, Any]:
    return {
        "model": "chat",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8,
        "temperature": 0,
    } | fields


def expected(prompt: str = SAID, tokens: int = 8) -> str:
    return text_of(continued(prompt.encode(), tokens))


async def test_a_conversation_is_continued(client: openai.AsyncOpenAI) -> None:
    """One JSON with message, why it ended, and counts."""
    answer = await client.chat.completions.create(**chat())
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == expected()
    assert choice.finish_reason == "length"
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert answer.model == "chat"
    assert answer.system_fingerprint == "fp_5eed5eed5eed"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(SAID), 8)
    assert answer.usage.total_tokens == len(SAID) + 8
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_parts_of_text_are_one_message(client: openai.AsyncOpenAI) -> None:
    """Content may be a list; the newer names of fields and roles count."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "c"}, {"role": "user", "content": parts}]
    answer = await client.chat.completions.create(
        **chat(messages=messages, max_tokens=None, max_completion_tokens=3)
    )
    prompt = "<system>c\n<user>a\nb\n<assistant>"
    assert answer.choices[0].message.content == expected(prompt, 3)


async def test_a_stream_begins_with_the_role_and_ends_with_counts(
    client: openai.AsyncOpenAI,
) -> None:
    """Role, pieces, why it ended, counts, and the end; all under one id."""
    stream = await client.chat.completions.create(
        **chat(stream=True, stream_options={"include_usage": True})
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == expected()
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


async def test_what_a_stream_is_on_the_wire(text_edge: EdgeUnderTest) -> None:
    """Server-sent events, ended by `[DONE]`; without being asked for, no counts."""
    status, headers, body = await text_edge.http(
        "POST", "/v1/chat/completions", json.dumps(chat(stream=True)).encode()
    )
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    said = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert all("usage" not in chunk for chunk in said)


async def test_a_query_changes_nothing(text_edge: EdgeUnderTest) -> None:
    """The body is what counts, whatever a query is called."""
    path = "/v1/chat/completions?model=nope&data=e30%3D&content_type=x&unknown=1"
    status, _, answer = await text_edge.http("POST", path, json.dumps(chat()).encode())
    assert status == 200
    assert json.loads(answer)["choices"][0]["message"]["content"] == expected()


async def test_several_answers_and_their_likelihoods(client: openai.AsyncOpenAI) -> None:
    """`n`, `logprobs`, streamed and not: each index has its own text, role and end."""
    fields = chat(n=3, logprobs=True, top_logprobs=2, max_tokens=4, temperature=1, seed=7)
    whole = await client.chat.completions.create(**fields)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    for choice in whole.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert len(choice.logprobs.content) == 4
        for token in choice.logprobs.content:
            assert token.bytes == list(token.token.encode("latin-1", "replace")) or token.bytes
            assert len(token.top_logprobs) == 2
            assert token.logprob <= 0
    stream = await client.chat.completions.create(**fields, stream=True)
    texts: dict[int, str] = {}
    ends: dict[int, str] = {}
    roles: list[int] = []
    async for chunk in stream:
        for one in chunk.choices:
            texts[one.index] = texts.get(one.index, "") + (one.delta.content or "")
            roles += [one.index] if one.delta.role else []
            if one.finish_reason:
                ends[one.index] = one.finish_reason
    assert texts == {choice.index: choice.message.content for choice in whole.choices}
    assert ends == dict.fromkeys((0, 1, 2), "length")
    assert sorted(roles) == [0, 1, 2]


async def test_a_stop_string_ends_the_text(client: openai.AsyncOpenAI) -> None:
    """It is not part of the text, and the reason is `stop`."""
    full = expected(tokens=12)
    answer = await client.chat.completions.create(**chat(max_tokens=12, stop=[full[5:7]]))
    assert answer.choices[0].message.content == full[: full.index(full[5:7])]
    assert answer.choices[0].finish_reason == "stop"


async def test_completions(client: openai.AsyncOpenAI) -> None:
    """Text, tokens, several of either; `echo` puts the prompt before; 16 tokens if nobody says how many."""
    one = await client.completions.create(model="chat", prompt="hello", temperature=0)
    assert one.choices[0].text == expected("hello", 16)
    assert one.object == "text_completion"
    assert one.id.startswith("cmpl-")
    several = await client.completions.create(
        model="chat", prompt=["ab", "cd"], n=2, temperature=0, max_tokens=4, echo=True
    )
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    wanted = [prompt + expected(prompt, 4) for prompt in ("ab", "ab", "cd", "cd")]
    assert [choice.text for choice in several.choices] == wanted
    assert several.usage is not None
    assert several.usage.completion_tokens == 16
    tokens = await client.completions.create(
        model="chat", prompt=[[97, 98], [99, 100]], temperature=0, max_tokens=4, logprobs=1
    )
    assert [choice.text for choice in tokens.choices] == [expected("ab", 4), expected("cd", 4)]
    said = tokens.choices[0].logprobs
    assert said is not None
    assert said.text_offset == [0, 1, 2, 3]
    assert said.tokens is not None
    assert "".join(said.tokens) == expected("ab", 4)
    assert said.top_logprobs is not None
    assert [len(top) for top in said.top_logprobs] == [1, 1, 1, 1]


async def test_completions_as_a_stream(client: openai.AsyncOpenAI) -> None:
    """The same pieces under their indices, the prompt first where it is repeated."""
    stream = await client.completions.create(
        model="chat", prompt=["ab", "cd"], temperature=0, max_tokens=4, stream=True, echo=True
    )
    texts = {0: "", 1: ""}
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {0: "ab" + expected("ab", 4), 1: "cd" + expected("cd", 4)}


async def test_the_client_that_blocks(text_edge: EdgeUnderTest) -> None:
    """The other one of OpenAI's clients, streaming and not."""

    def ask() -> tuple[str | None, str]:
        url = f"http://{text_edge.settings.address}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            whole = client.chat.completions.create(**chat())
            pieces = client.chat.completions.create(**chat(stream=True))
            text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
            return whole.choices[0].message.content, text

    assert await asyncio.to_thread(ask) == (expected(), expected())


async def test_a_version_is_named_after_the_endpoint(
    text_edge: EdgeUnderTest, client: openai.AsyncOpenAI
) -> None:
    """`endpoint@version` pins; another version is not found."""
    answer = await client.chat.completions.create(**chat(model="chat@1"))
    assert (answer.choices[0].message.content, answer.model) == (expected(), "chat@1")
    with pytest.raises(openai.NotFoundError) as told:
        await client.chat.completions.create(**chat(model="chat@2"))
    assert told.value.code == "model_not_found"
