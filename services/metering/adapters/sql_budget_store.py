"""Budgets in metering's database."""

from collections.abc import Mapping

from pydantic import TypeAdapter
from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from services.metering.adapters.budget_tables import budget_accounts, budgets
from services.metering.adapters.database import Database
from services.metering.domain.budget import Budget
from services.metering.domain.budget_account import Account
from services.metering.ports.budget_store import StoredBudgets

_BUDGET = TypeAdapter(Budget)
_ACCOUNT = TypeAdapter(Account)

_new_budget = insert(budgets)
_PUT = _new_budget.on_conflict_do_update(
    index_elements=["uid"], set_={"body": _new_budget.excluded.body}
)
_new_account = insert(budget_accounts)
_SAVE = _new_account.on_conflict_do_update(
    index_elements=["uid", "window_start"], set_={"body": _new_account.excluded.body}
)
_FORGET = delete(budget_accounts).where(
    budget_accounts.c.uid == bindparam("gone_uid"),
    budget_accounts.c.window_start == bindparam("gone_start"),
)


class SqlBudgetStore:
    """A BudgetStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> StoredBudgets:
        async def work(connection: AsyncConnection) -> StoredBudgets:
            found = await connection.execute(select(budgets.c.body))
            accounts = await connection.execute(select(budget_accounts.c.body))
            return StoredBudgets(
                tuple(_BUDGET.validate_json(body) for body in found.scalars()),
                tuple(_ACCOUNT.validate_json(body) for body in accounts.scalars()),
            )

        return await self._database.read(work)

    async def put(self, budget: Budget) -> None:
        row = {
            "uid": budget.uid,
            "project": budget.name.project,
            "budget": budget.name.budget,
            "body": _BUDGET.dump_json(budget).decode(),
        }

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_PUT, row)

        await self._database.write(work)

    async def remove(self, uid: str) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(delete(budgets).where(budgets.c.uid == uid))

        await self._database.write(work)

    async def save(self, accounts: Mapping[tuple[str, int], Account | None]) -> None:
        # Written down before the transaction begins: accounts go on changing while it waits for its turn.
        kept, gone = [], []
        for (uid, start), account in accounts.items():
            if account is None:
                gone.append({"gone_uid": uid, "gone_start": start})
            else:
                body = _ACCOUNT.dump_json(account).decode()
                kept.append({"uid": uid, "window_start": start, "body": body})

        async def work(connection: AsyncConnection) -> None:
            if gone:
                await connection.execute(_FORGET, gone)
            if kept:
                await connection.execute(_SAVE, kept)

        if kept or gone:
            await self._database.write(work)
