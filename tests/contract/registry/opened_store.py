"""A store that has just been opened: where its revisions begin, and the words in which suites write and read it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from services.registry.adapters.memory_store import MemoryStore
from services.registry.adapters.sql_store import SqlStore
from services.registry.domain.model import Model
from services.registry.ports.store import Store, Transaction
from services.rpc.names import ModelName

FIRST = 1_000_000
Opening = Callable[..., AbstractAsyncContextManager[MemoryStore | SqlStore]]


async def put(store: Store, *resources: Any) -> None:
    async def work(transaction: Transaction) -> None:
        for record in resources:
            await transaction.put(record)

    await store.write(work)


async def get_model(store: Store, name: str = "m") -> Model | None:
    return await store.read(lambda view: view.get(Model, ModelName(name)))
