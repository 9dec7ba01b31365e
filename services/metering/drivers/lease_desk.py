"""Answers holders of leases: what is granted is durable before they hear of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from services.metering.domain.budget import Budget
from services.metering.domain.budget_index import BudgetIndex
from services.metering.domain.lease_book import LeaseBook
from services.metering.domain.lease_exchange import Alert, Answer, Exchange
from services.metering.drivers.desk import Decide, Decision, LeaseCounts, moment
from services.metering.ports.budget_store import BudgetStore
from services.rpc.clock import Clock
from services.rpc.completion import to_completion
from services.rpc.errors import InferplaneError

_log = structlog.get_logger(__name__)

_SAVE_SECONDS = 1.0  # after which also what nobody waits for is durable
_TIDY_SECONDS = 60.0


@dataclass(slots=True)
class LeaseDesk:
    """A Desk of the only process: the book of leases and its store.

    One at a time writes; who comes meanwhile shares the next write.
    """

    store: BudgetStore
    clock: Clock
    lease_seconds: float
    told: Callable[[Alert], None]
    book: LeaseBook = field(init=False)
    counts: LeaseCounts = field(default_factory=LeaseCounts)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def open(self) -> None:
        """Read everything; before the first exchange."""
        stored = await self.store.load()
        # Higher than in any run before this one, so that holders ask again what they missed.
        index = BudgetIndex(round(self.clock.now().timestamp() * 1_000_000))
        for budget in stored.budgets:
            index.put(budget)
        self.book = LeaseBook(index, self.lease_seconds)
        self.book.restore(stored.accounts, moment(self.clock))

    async def exchange(self, said: Exchange) -> Answer:
        """Take down what a holder says and answer it. AbortedError if it is older than what it said before."""
        answer, must_save = self.book.exchange(said, moment(self.clock))
        self.counts.exchanges += 1
        if must_save:
            await self.save()
        self._tell()
        return answer

    async def save(self) -> None:
        """Make durable what changed until now."""
        async with self.writing:
            taken, self.book.unsaved = self.book.unsaved, {}
            if not taken:
                return
            try:
                await self.store.save(taken)
            except BaseException:
                # As they are now, unless they changed once more meanwhile.
                self.book.unsaved = {**taken, **self.book.unsaved}
                raise
            self.counts.saves += 1

    async def refresh(self) -> None:
        """The book always knows everything."""

    async def change(self, decide: Decide) -> Budget:
        """Change the budget that is decided on; durable when it returns."""
        async with self.writing:
            decision = decide(self.book)
            await to_completion(self._keep(decision))
        return decision.budget

    async def _keep(self, decision: Decision) -> None:
        """In the store and in the book, or in neither, also if the caller goes meanwhile."""
        budget = decision.budget
        if decision.is_gone:
            await self.store.remove(budget.uid)
            self.book.budgets.remove(budget)
            self.book.drop(budget.uid)
        else:
            await self.store.put(budget)
            self.book.budgets.put(budget)

    async def run(self) -> None:
        """End leases in time and write what nobody waits for, until cancelled."""
        tidied = self.clock.monotonic()
        never = asyncio.Event()
        while True:
            await self.clock.wait(never, self.clock.monotonic() + _SAVE_SECONDS)
            now = moment(self.clock)
            for holder in self.book.end_leases(now):
                self.counts.ended += 1
                _log.warning("leases over: the worker didn't come in time", holder=holder)
            if now.monotonic - tidied >= _TIDY_SECONDS:
                self.book.tidy(now)
                tidied = now.monotonic
            try:
                await self.save()
            except InferplaneError as error:
                _log.error("budgets not saved, trying again", error=str(error))

    def _tell(self) -> None:
        alerts, self.book.alerts = self.book.alerts, []
        for alert in alerts:
            self.counts.alerts += 1
            self.told(alert)
