"""Where budgets and their accounts are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.metering.domain.budget import Budget
from services.metering.domain.budget_account import Account


@dataclass(frozen=True, slots=True)
class StoredBudgets:
    """All that is kept."""

    budgets: Sequence[Budget]
    accounts: Sequence[Account]


class BudgetStore(Protocol):
    """Used by one process, which has all of it in memory: the store is what it finds after a restart.

    What returned is durable. What raised changed nothing: ResourceExhaustedError (disk full),
    UnavailableError or InternalError.
    """

    async def load(self) -> StoredBudgets:
        """Everything."""
        ...

    async def put(self, budget: Budget) -> None:
        """Keep the budget, in place of the one with its uid."""
        ...

    async def remove(self, uid: str) -> None:
        """Forget the budget and its accounts."""
        ...

    async def save(self, accounts: Mapping[tuple[str, int], Account | None]) -> None:
        """Keep accounts by (uid, start of the window) as they are now; None: forget it. All or nothing."""
        ...
