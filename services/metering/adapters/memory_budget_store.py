"""Budgets in memory: gone with the process."""

from collections.abc import Mapping
from copy import deepcopy

from services.metering.domain.budget import Budget
from services.metering.domain.budget_account import Account
from services.metering.ports.budget_store import StoredBudgets


class MemoryBudgetStore:
    """A BudgetStore whose accounts are copies, as those of a database are."""

    def __init__(self) -> None:
        self._budgets: dict[str, Budget] = {}
        self._accounts: dict[tuple[str, int], Account] = {}

    async def load(self) -> StoredBudgets:
        return StoredBudgets(
            tuple(self._budgets.values()), tuple(deepcopy(list(self._accounts.values())))
        )

    async def put(self, budget: Budget) -> None:
        self._budgets[budget.uid] = budget

    async def remove(self, uid: str) -> None:
        self._budgets.pop(uid, None)
        for key in [key for key in self._accounts if key[0] == uid]:
            del self._accounts[key]

    async def save(self, accounts: Mapping[tuple[str, int], Account | None]) -> None:
        for key, account in accounts.items():
            if account is None:
                self._accounts.pop(key, None)
            else:
                self._accounts[key] = deepcopy(account)
