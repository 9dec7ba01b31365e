"""Changes of budgets whose caller goes away."""

import asyncio

import pytest

from services.metering.adapters.memory_budget_store import MemoryBudgetStore
from services.metering.domain.budget import Budget, BudgetInput, BudgetName, BudgetUnit
from services.metering.drivers.budgets import Budgets
from services.metering.drivers.lease_desk import LeaseDesk
from services.rpc.calendar_window import WindowKind
from services.rpc.names import ProjectName
from tests.manual_clock import ManualClock

NAME = BudgetName("p", "b")
WANTED = BudgetInput(unit=BudgetUnit.TOKENS, amount=10, window=WindowKind.DAY)


class SlowStore(MemoryBudgetStore):
    """Begins at once and ends when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    async def put(self, budget: Budget) -> None:
        self.began.set()
        await self.may_end.wait()
        await super().put(budget)


class AllProjects:
    """There is every project."""

    async def get(self, name: ProjectName) -> object:
        return name


async def test_a_budget_is_stored_and_known_or_neither() -> None:
    """Its caller goes while it is being written: it is written to the end, and binds."""
    store = SlowStore()
    desk = LeaseDesk(store=store, clock=ManualClock(), lease_seconds=10.0, told=lambda _alert: None)
    await desk.open()
    budgets = Budgets(desk, AllProjects())
    creating = asyncio.create_task(budgets.create(NAME, WANTED))
    await store.began.wait()
    creating.cancel()
    asyncio.get_running_loop().call_soon(store.may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await creating
    stored = await store.load()
    assert [budget.name for budget in stored.budgets] == [NAME]
    assert (await budgets.get(NAME)).budget == stored.budgets[0]
