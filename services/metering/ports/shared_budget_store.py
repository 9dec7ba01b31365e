"""Where budgets and their accounts are kept if several processes grant out of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from services.metering.domain.budget import Budget
from services.metering.domain.budget_account import Account

T = TypeVar("T")
EVERYTHING = -1  # a revision below all


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """A budget as it is now; None: it is gone."""

    uid: str
    budget: Budget | None
    revision: int


@dataclass(frozen=True, slots=True)
class AccountNews:
    """What was written after a revision."""

    accounts: Sequence[Account]
    holders: Mapping[str, int]  # sequences of those that were answered
    revision: int  # of the last of it


class SharedBudgetTransaction(Protocol):
    """Nobody else writes meanwhile, and what others wrote before is there."""

    async def news(self, after: int) -> AccountNews:
        """Accounts and holders that were written after a revision, by whomever."""
        ...

    async def save(
        self, accounts: Mapping[tuple[str, int], Account | None], holders: Mapping[str, int | None]
    ) -> int:
        """Keep accounts and holders' sequences as they are now, None: forget it. Returns the revision."""
        ...

    async def put(self, budget: Budget) -> int:
        """Keep the budget, in place of the one with its uid. Returns the revision."""
        ...

    async def remove(self, uid: str) -> int:
        """Forget the budget and its accounts. Returns the revision."""
        ...


class SharedBudgetStore(Protocol):
    """The store is what all processes agree on; what each has in memory follows it.

    What returned is durable. What raised changed nothing, save UnavailableError with reason COMMIT_UNKNOWN.
    """

    async def load(self) -> tuple[Sequence[Budget], int]:
        """All budgets there are, and the revision of the last change of any, at least 1; once they are followed."""
        ...

    def follow(self, taken: Callable[[BudgetChange], None]) -> None:
        """Have somebody hear of budgets that were changed: before each write here, and soon after others' writes."""
        ...

    async def news(self, after: int) -> AccountNews:
        """What was written after a revision until now; what `follow` tells has been told until now, too."""
        ...

    async def write(
        self,
        work: Callable[[SharedBudgetTransaction], Awaitable[T]],
        committed: Callable[[T], None] | None = None,
    ) -> T:
        """Run `work` alone and commit it, all or nothing; again from its beginning if that failed without a trace.

        `committed` is called with the result once it is durable, before anything newer is followed here.
        """
        ...
