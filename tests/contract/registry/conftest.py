"""Every store there is, opened anew for each test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.registry.adapters.memory_store import MemoryStore
from services.registry.adapters.sql_store import SqlStore
from services.registry.ports.store import Store
from services.rpc import postgres
from tests.contract.registry.opened_store import FIRST, Opening


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    # Asked for by those that use it: the others start no server.
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""

    @asynccontextmanager
    async def open_store(kept: int = 10_000) -> AsyncIterator[MemoryStore | SqlStore]:
        if request.param == "memory":
            yield MemoryStore(first_revision=FIRST, kept_changes=kept)
        elif target := postgres.target(url, None, "registry"):
            opened = SqlStore.on_postgres(target, first_revision=FIRST, kept_changes=kept)
            async with opened as store:
                await store.take_over()
                yield store
        else:
            path = tmp_path / "registry.db"
            async with SqlStore.open(path, first_revision=FIRST, kept_changes=kept) as store:
                yield store

    return open_store


@pytest.fixture
async def store(opening: Opening) -> AsyncIterator[Store]:
    async with opening() as opened:
        yield opened
