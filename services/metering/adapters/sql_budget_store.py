"""Budgets in metering's database."""

from collections.abc import Mapping

import sqlalchemy as sa
from pydantic import TypeAdapter

from services.metering.adapters.database import Database
from services.metering.adapters.statements import run
from services.metering.domain.budget import Budget
from services.metering.domain.budget_account import Account
from services.metering.ports.budget_store import StoredBudgets

_BUDGET = TypeAdapter(Budget)
_ACCOUNT = TypeAdapter(Account)

_PUT = (
    "INSERT INTO budgets (uid, project, budget, body) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (uid) DO UPDATE SET body = excluded.body"
)
_SAVE = (
    "INSERT INTO budget_accounts (uid, window_start, body) VALUES (?, ?, ?)"
    " ON CONFLICT (uid, window_start) DO UPDATE SET body = excluded.body"
)
_FORGET = "DELETE FROM budget_accounts WHERE uid = ? AND window_start = ?"


def put_budget(connection: sa.Connection, budget: Budget) -> None:
    """Keep the budget, in place of the one with its uid."""
    body = _BUDGET.dump_json(budget).decode()
    run(connection, _PUT, (budget.uid, budget.name.project, budget.name.budget, body))


def remove_budget(connection: sa.Connection, uid: str) -> None:
    """Forget the budget and its accounts."""
    run(connection, "DELETE FROM budgets WHERE uid = ?", (uid,))


def read_budget(body: str) -> Budget:
    """As it was kept."""
    return _BUDGET.validate_json(body)


def read_account(body: str) -> Account:
    """As it was kept."""
    return _ACCOUNT.validate_json(body)


def account_body(account: Account) -> str:
    """As it is kept."""
    return _ACCOUNT.dump_json(account).decode()


def load_budgets(connection: sa.Connection) -> list[Budget]:
    """All of them."""
    return [read_budget(body) for body in run(connection, "SELECT body FROM budgets").scalars()]


class SqlBudgetStore:
    """A BudgetStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> StoredBudgets:
        def work(connection: sa.Connection) -> StoredBudgets:
            accounts = run(connection, "SELECT body FROM budget_accounts").scalars()
            return StoredBudgets(
                tuple(load_budgets(connection)), tuple(read_account(body) for body in accounts)
            )

        return await self._database.read(lambda c: c.run_sync(work))

    async def put(self, budget: Budget) -> None:
        await self._database.write(lambda c: c.run_sync(put_budget, budget))

    async def remove(self, uid: str) -> None:
        await self._database.write(lambda c: c.run_sync(remove_budget, uid))

    async def save(self, accounts: Mapping[tuple[str, int], Account | None]) -> None:
        # Written down before the transaction begins: accounts go on changing while it waits for its turn.
        gone = [key for key, account in accounts.items() if account is None]
        kept = [
            (uid, start, account_body(account))
            for (uid, start), account in accounts.items()
            if account is not None
        ]

        def work(connection: sa.Connection) -> None:
            if gone:
                run(connection, _FORGET, gone)
            if kept:
                run(connection, _SAVE, kept)

        if kept or gone:
            await self._database.write(lambda c: c.run_sync(work))
