"""Every store of metering there is, opened anew for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.metering.adapters.database import Database
from services.metering.adapters.memory_identity import MemoryIdentityStore
from services.metering.adapters.sql_identity import SqlIdentityStore
from services.metering.ports.identity_store import IdentityStore
from services.rpc.postgres import Target
from tests.contract.metering.ledger_world import new_ledger
from tests.metering_postgres import target_of


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Target:
    """An empty ledger on each engine."""
    if request.param == "sqlite":
        return new_ledger(tmp_path)
    return target_of(request.getfixturevalue("metering_url"))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def identities(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[IdentityStore]:
    if request.param == "memory":
        yield MemoryIdentityStore()
        return
    store: Path | Target = tmp_path / "metering.db"
    if request.param == "postgres":
        store = target_of(request.getfixturevalue("metering_url"))
    async with Database.open(store) as database:
        yield SqlIdentityStore(database)
