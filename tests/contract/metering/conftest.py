"""Every store of metering there is, opened anew for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.metering.adapters.database import Database
from services.metering.adapters.memory_identity import MemoryIdentityStore
from services.metering.adapters.sql_identity import SqlIdentityStore
from services.metering.ports.identity_store import IdentityStore


@pytest.fixture(params=["memory", "sqlite"])
async def identities(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[IdentityStore]:
    if request.param == "memory":
        yield MemoryIdentityStore()
        return
    async with Database.open(tmp_path / "metering.db") as database:
        yield SqlIdentityStore(database)
