"""The list of models that OpenAI's clients see, on the store in memory."""

from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from inferplane.openai.v1 import openai_service_pb2 as openai

from services.registry.adapters.memory_store import MemoryStore
from services.registry.domain.model import Format
from services.registry.drivers.language_endpoints import LanguageEndpoints
from services.registry.ports.store import Transaction
from services.registry.servicers.openai_models import OpenAiModels
from services.rpc.errors import InvalidArgumentError, NotFoundError
from services.rpc.names import AliasName, VersionName
from tests.unit.registry import records


@dataclass(frozen=True)
class Context:
    """What is read of a call: its headers."""

    headers: tuple[tuple[str, str | bytes], ...] = ()

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self.headers


@pytest.fixture
async def models() -> OpenAiModels:
    """A language model behind two endpoints, of which one means an alias, and a tensor model behind another."""
    store = MemoryStore(first_revision=1)

    async def work(transaction: Transaction) -> None:
        for name in ("smol", "digits"):
            await transaction.put(records.model(name))
        await transaction.put(replace(records.version("smol@1"), format=Format.GGUF))
        await transaction.put(records.version("digits@1"))
        await transaction.put(records.alias("smol@champion", "1"))
        await transaction.put(records.endpoint("chat", AliasName("smol", "champion")))
        await transaction.put(records.endpoint("smol", VersionName("smol", "1")))
        await transaction.put(records.endpoint("digits", VersionName("digits", "1")))

    await store.write(work)
    return OpenAiModels(LanguageEndpoints(store))


async def test_endpoints_of_language_models_are_listed(models: OpenAiModels) -> None:
    """In OpenAI's shape; others are not."""
    context: Any = Context()
    answer = await models.ListModels(openai.ListModelsRequest(), context)
    said = orjson.loads(answer.data)
    assert said["object"] == "list"
    assert [model["id"] for model in said["data"]] == ["chat", "smol"]
    assert said["data"][0] == {
        "id": "chat",
        "object": "model",
        "created": int(records.NOW.timestamp()),
        "owned_by": "inferplane",
    }


@pytest.mark.parametrize("name", ["chat", "smol", "chat@1"])
async def test_one_is_found_by_the_name_it_is_called_by(models: OpenAiModels, name: str) -> None:
    """An endpoint, or one of its versions."""
    context: Any = Context()
    answer = await models.GetModel(openai.GetModelRequest(model=name), context)
    assert orjson.loads(answer.data)["id"] == name


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param("nobody", NotFoundError, id="no endpoint"),
        pytest.param("chat@2", NotFoundError, id="no such version"),
        pytest.param("digits", NotFoundError, id="no language model"),
        pytest.param("Not an id", InvalidArgumentError, id="no id"),
    ],
)
async def test_others_are_refused(models: OpenAiModels, name: str, error: type[Exception]) -> None:
    """By their name."""
    context: Any = Context()
    with pytest.raises(error, match=name.partition("@")[0]):
        await models.GetModel(openai.GetModelRequest(model=name), context)


@pytest.mark.parametrize(
    ("said", "listed"),
    [
        ('["*"]', ["chat", "smol"]),
        ('["digits", "*"]', ["chat", "smol"]),
        ('["chat", "digits"]', ["chat"]),
        ("[]", []),
        ("chat", ["chat"]),
        ('{"chat": true}', []),
        ("[1, null]", []),
    ],
)
async def test_callers_see_what_their_keys_are_for(
    models: OpenAiModels, said: str, listed: list[str]
) -> None:
    """The edge says which endpoints those are; of others there is nothing to see."""
    context: Any = Context((("x-inferplane-endpoints", said),))
    answer = await models.ListModels(openai.ListModelsRequest(), context)
    assert [model["id"] for model in orjson.loads(answer.data)["data"]] == listed
    for name in ("chat", "chat@1"):
        request = openai.GetModelRequest(model=name)
        if "chat" in listed:
            assert orjson.loads((await models.GetModel(request, context)).data)["id"] == name
        else:
            with pytest.raises(NotFoundError, match="endpoints/chat does not exist"):
                await models.GetModel(request, context)
