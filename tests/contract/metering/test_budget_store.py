"""What every store of budgets does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.metering.adapters.database import Database
from services.metering.adapters.memory_budget_store import MemoryBudgetStore
from services.metering.adapters.sql_budget_store import SqlBudgetStore
from services.metering.domain.budget import Budget, BudgetName, BudgetUnit
from services.metering.domain.budget_account import Account, Lease
from services.metering.ports.budget_store import BudgetStore
from services.rpc.calendar_window import WindowKind
from services.rpc.postgres import Target
from tests.metering_postgres import target_of

FULL = Budget(
    uid="u1",
    name=BudgetName("p", "b"),
    unit=BudgetUnit.MONEY,
    amount=10**18,
    window=WindowKind.MONTH,
    key="k",
    endpoint="e",
    shadow=True,
    stop_streams=True,
    alert_percents=(50, 100),
    create_time=datetime(2030, 1, 1, 1, 2, 3, 4, tzinfo=UTC),
)
PLAIN = replace(FULL, uid="u2", name=BudgetName("p", "c"), alert_percents=(), key="", endpoint="")
ACCOUNT = Account(
    "u1",
    1_900_000_020,
    settled=10**17,
    lost=3,
    refused=4,
    alerted=50,
    leases={"w1": Lease(granted=5, used=4, refused=1, serial=7, sequence=9)},
    closed={"w2": 8},
)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BudgetStore]:
    if request.param == "memory":
        yield MemoryBudgetStore()
        return
    place: Path | Target = tmp_path / "metering.db"
    if request.param == "postgres":
        place = target_of(request.getfixturevalue("metering_url"))
    async with Database.open(place) as database:
        yield SqlBudgetStore(database)


async def test_what_was_kept_is_there(store: BudgetStore) -> None:
    """Every field of budgets and accounts, as it was."""
    await store.put(FULL)
    await store.put(PLAIN)
    await store.save({ACCOUNT.key: ACCOUNT})
    found = await store.load()
    assert {budget.uid: budget for budget in found.budgets} == {"u1": FULL, "u2": PLAIN}
    assert found.accounts == (ACCOUNT,)


async def test_what_is_kept_again_replaces(store: BudgetStore) -> None:
    """The newest counts, and what was forgotten is gone."""
    await store.put(FULL)
    await store.put(replace(FULL, amount=5))
    other = replace(ACCOUNT, window_start=0)
    await store.save({ACCOUNT.key: ACCOUNT, other.key: other})
    await store.save({ACCOUNT.key: replace(ACCOUNT, settled=1), other.key: None})
    found = await store.load()
    assert [budget.amount for budget in found.budgets] == [5]
    assert [(account.window_start, account.settled) for account in found.accounts] == [
        (ACCOUNT.window_start, 1)
    ]


async def test_a_budget_takes_its_accounts_with_it(store: BudgetStore) -> None:
    """Another of the same name finds nothing of it."""
    await store.put(FULL)
    await store.save({ACCOUNT.key: ACCOUNT})
    await store.remove("u1")
    await store.put(replace(FULL, uid="u3"))
    found = await store.load()
    assert ([budget.uid for budget in found.budgets], found.accounts) == (["u3"], ())


async def test_what_was_saved_does_not_change_with_what_was_given(store: BudgetStore) -> None:
    """An account that goes on changing is as it was when it was saved."""
    await store.put(FULL)
    account = replace(ACCOUNT, leases={"w1": Lease(granted=5)})
    await store.save({account.key: account})
    account.leases["w1"].used = 5
    assert (await store.load()).accounts[0].leases["w1"].used == 0


@asynccontextmanager
async def reopened(path: Path) -> AsyncIterator[SqlBudgetStore]:
    async with Database.open(path) as database:
        yield SqlBudgetStore(database)


async def test_the_database_keeps_it_over_restarts(tmp_path: Path) -> None:
    """What one process saved the next one finds."""
    async with reopened(tmp_path / "metering.db") as first:
        await first.put(FULL)
        await first.save({ACCOUNT.key: ACCOUNT})
    async with reopened(tmp_path / "metering.db") as second:
        found = await second.load()
    assert (found.budgets, found.accounts) == ((FULL,), (ACCOUNT,))
