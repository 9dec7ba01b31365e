"""Desks of leases that share a database, each with connections of its own as processes have them, and holders."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from services.metering.adapters.database import Database
from services.metering.adapters.sql_shared_budgets import SqlSharedBudgetStore
from services.metering.domain.budget import BudgetInput, BudgetName, BudgetUnit
from services.metering.domain.lease_exchange import Alert, BudgetUse, Exchange, Grant, LeaseUse
from services.metering.drivers.budgets import Budgets
from services.metering.drivers.shared_lease_desk import SharedLeaseDesk
from services.rpc.calendar_window import WindowKind
from services.rpc.clock import Clock
from services.rpc.postgres import Target
from tests.contract.metering.ledger_world import KNOWN

NAME = BudgetName("acme", "b")


def tokens(amount: int) -> BudgetInput:
    return BudgetInput(unit=BudgetUnit.TOKENS, amount=amount, window=WindowKind.MONTH)


@dataclass
class Process:
    """What a metering process has of budgets."""

    database: Database
    desk: SharedLeaseDesk
    budgets: Budgets
    alerts: list[Alert]


@asynccontextmanager
async def processes(target: Target, count: int, clock: Clock) -> AsyncIterator[list[Process]]:
    """So many of them, all open. Nothing runs beside what tests call."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_process(target, clock)) for _ in range(count)]


@asynccontextmanager
async def _process(target: Target, clock: Clock) -> AsyncIterator[Process]:
    async with Database.open(target) as database:
        alerts: list[Alert] = []
        desk = SharedLeaseDesk(SqlSharedBudgetStore(database), clock, 10.0, alerts.append)
        await desk.open()
        yield Process(database, desk, Budgets(desk, KNOWN), alerts)


@dataclass
class Holder:
    """A worker that asks any of the processes, and may use what it was granted and heard of."""

    name: str
    uid: str
    sequence: int = 0
    granted: int = 0
    used: int = 0
    refused: int = 0
    serial: int = 0
    window: int = 0
    drawn: random.Random = field(default_factory=random.Random)

    def says(self, needed: int) -> Exchange:
        """The next exchange; asks for more."""
        self.sequence += 1
        use = BudgetUse(uid=self.uid, leases=self._leases(), needed=needed, wanted=needed)
        return Exchange(holder=self.name, sequence=self.sequence, uses=[use])

    def _leases(self) -> Sequence[LeaseUse]:
        if not self.serial:
            return ()
        told = LeaseUse(
            window_start=self.window,
            granted=self.granted,
            used=self.used,
            refused=0,
            is_closed=False,
            serial=self.serial,
        )
        return (told,)

    def hears(self, grant: Grant) -> None:
        """May use so much."""
        if grant.granted and not self.serial:
            self.serial = self.sequence
        self.granted, self.window = grant.granted, grant.window_start

    def works(self) -> None:
        """Use some of what it may."""
        self.used += self.drawn.randint(0, max(0, self.granted - self.used))
