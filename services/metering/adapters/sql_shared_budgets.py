"""Budgets in a database that several processes share."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.metering.adapters.database import Database
from services.metering.adapters.news import note
from services.metering.adapters.sql_budget_store import (
    account_body,
    load_budgets,
    put_budget,
    read_account,
    read_budget,
    remove_budget,
)
from services.metering.adapters.statements import Among, run
from services.metering.domain.budget import Budget
from services.metering.domain.budget_account import Account
from services.metering.ports.shared_budget_store import (
    AccountNews,
    BudgetChange,
    SharedBudgetTransaction,
)

T = TypeVar("T")

_TOPIC = "budgets"
_NEWS = (
    "SELECT body, '', 0, revision FROM budget_accounts WHERE revision > ? UNION ALL"
    " SELECT '', holder, sequence, revision FROM lease_holders WHERE revision > ?"
)
_SAVE = (
    "WITH drawn AS MATERIALIZED (SELECT nextval('metering_revision') AS revision), accounts AS ("
    "INSERT INTO budget_accounts (uid, window_start, body, revision)"
    " SELECT a.uid, a.start, a.body, d.revision"
    " FROM unnest(?::text[], ?::bigint[], ?::text[]) AS a(uid, start, body), drawn AS d"
    " ON CONFLICT (uid, window_start) DO UPDATE SET body = excluded.body,"
    " revision = excluded.revision), holders AS ("
    "INSERT INTO lease_holders (holder, sequence, revision) SELECT h.holder, h.sequence, d.revision"
    " FROM unnest(?::text[], ?::numeric[]) AS h(holder, sequence), drawn AS d"
    " ON CONFLICT (holder) DO UPDATE SET sequence = excluded.sequence,"
    " revision = excluded.revision) SELECT revision FROM drawn"
)
_FORGET = "DELETE FROM budget_accounts WHERE uid = ? AND window_start = ?"


def _news(connection: sa.Connection, after: int) -> AccountNews:
    rows = run(connection, _NEWS, (after, after)).all()
    return AccountNews(
        [read_account(row[0]) for row in rows if row[0]],
        {row[1]: row[2] for row in rows if row[1]},
        max((row[3] for row in rows), default=after),
    )


def _save(
    connection: sa.Connection,
    accounts: Mapping[tuple[str, int], Account | None],
    holders: Mapping[str, int | None],
) -> int:
    gone = [key for key, account in accounts.items() if account is None]
    if gone:
        run(connection, _FORGET, gone)
    over = [holder for holder, sequence in holders.items() if sequence is None]
    if over:
        run(connection, "DELETE FROM lease_holders WHERE holder AMONG ?", (Among(over),))
    kept = [(*key, account_body(account)) for key, account in accounts.items() if account]
    told = [(holder, sequence) for holder, sequence in holders.items() if sequence is not None]
    columns = (
        *([row[place] for row in kept] for place in range(3)),
        *([row[place] for row in told] for place in range(2)),
    )
    return int(run(connection, _SAVE, columns).scalar_one())


class SqlSharedBudgetTransaction:
    """A SharedBudgetTransaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def news(self, after: int) -> AccountNews:
        return await self._connection.run_sync(_news, after)

    async def save(
        self, accounts: Mapping[tuple[str, int], Account | None], holders: Mapping[str, int | None]
    ) -> int:
        return await self._connection.run_sync(_save, accounts, holders)

    async def put(self, budget: Budget) -> int:
        await self._connection.run_sync(put_budget, budget)
        return await self._connection.run_sync(note, _TOPIC, budget.uid)

    async def remove(self, uid: str) -> int:
        await self._connection.run_sync(remove_budget, uid)
        return await self._connection.run_sync(note, _TOPIC, uid)


class SqlSharedBudgetStore:
    """A SharedBudgetStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def follow(self, taken: Callable[[BudgetChange], None]) -> None:
        def follower(connection: sa.Connection, changed: Mapping[str, int]) -> None:
            rows = run(
                connection,
                "SELECT uid, body FROM budgets WHERE uid AMONG ?",
                (Among(list(changed)),),
            )
            found = {row[0]: read_budget(row[1]) for row in rows}
            for uid, revision in changed.items():
                taken(BudgetChange(uid, found.get(uid), revision))

        self._database.follow(_TOPIC, follower)

    async def load(self) -> tuple[Sequence[Budget], int]:
        def work(connection: sa.Connection) -> tuple[Sequence[Budget], int]:
            last = run(
                connection,
                "SELECT coalesce(max(revision), 1) FROM metering_changes WHERE topic = ?",
                (_TOPIC,),
            )
            return load_budgets(connection), int(last.scalar_one())

        return await self._database.read(lambda c: c.run_sync(work))

    async def news(self, after: int) -> AccountNews:
        await self._database.catch_up()
        return await self._database.read(lambda c: c.run_sync(_news, after))

    async def write(
        self,
        work: Callable[[SharedBudgetTransaction], Awaitable[T]],
        committed: Callable[[T], None] | None = None,
    ) -> T:
        return await self._database.write(lambda c: work(SqlSharedBudgetTransaction(c)), committed)
