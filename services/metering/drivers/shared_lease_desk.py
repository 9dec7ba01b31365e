"""Answers holders of leases where several metering processes grant out of the same budgets.

Each answer is decided inside the transaction that writes it down, which no other process is in meanwhile, on a book
that has just taken over what the others wrote: so two can't grant the same. Who comes while a transaction runs shares
the next one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from services.metering.domain.budget import Budget
from services.metering.domain.budget_index import BudgetIndex
from services.metering.domain.lease_book import LeaseBook, Moment
from services.metering.domain.lease_exchange import Alert, Answer, Exchange
from services.metering.drivers.desk import Decide, Decision, LeaseCounts, moment
from services.metering.ports.shared_budget_store import (
    EVERYTHING,
    BudgetChange,
    SharedBudgetStore,
    SharedBudgetTransaction,
)
from services.rpc.clock import Clock
from services.rpc.completion import to_completion
from services.rpc.errors import InferplaneError, InternalError

_log = structlog.get_logger(__name__)
T = TypeVar("T")

_LOOK_SECONDS = 1.0
_TIDY_SECONDS = 60.0


@dataclass(slots=True)
class _Waiting:
    """An exchange that is to be answered."""

    said: Exchange
    answer: Answer | InferplaneError | None = None

    def taken(self) -> Answer:
        """The answer; raises if it is an error."""
        if isinstance(self.answer, InferplaneError):
            raise self.answer
        if self.answer is None:
            raise InternalError("this exchange was not answered")
        return self.answer


@dataclass(slots=True)
class SharedLeaseDesk:
    """A Desk. The store is what counts; the book follows it, and is read anew when a write failed."""

    store: SharedBudgetStore
    clock: Clock
    lease_seconds: float
    told: Callable[[Alert], None]
    book: LeaseBook = field(init=False)
    counts: LeaseCounts = field(default_factory=LeaseCounts)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _seen: int = EVERYTHING  # what the store had under later revisions the book doesn't know
    _waiting: list[_Waiting] = field(default_factory=list)
    _touched: dict[str, int | None] = field(default_factory=dict)  # holders and their sequences

    async def open(self) -> None:
        """Read everything; before the first exchange."""
        self.store.follow(self._budget_changed)
        budgets, revision = await self.store.load()
        index = BudgetIndex(revision)
        for budget in budgets:
            index.put(budget, revision)
        self.book = LeaseBook(index, self.lease_seconds, is_shared=True)
        await self.refresh()

    def _budget_changed(self, change: BudgetChange) -> None:
        index = self.book.budgets
        known = index.get(change.uid)
        if change.budget is not None:
            index.put(change.budget, change.revision)
        elif known is not None:
            index.remove(known, change.revision)
            self.book.drop(change.uid)

    async def refresh(self) -> None:
        """Take over what other processes wrote until now."""
        async with self.writing:
            news = await self.store.news(self._seen)
            if self._seen == EVERYTHING:
                self.book.forget()
            self.book.merge(news.accounts, news.holders, moment(self.clock))
            self._seen = news.revision

    async def exchange(self, said: Exchange) -> Answer:
        """Take down what a holder says and answer it. AbortedError if it is older than what it said before."""
        waiting = _Waiting(said)
        self._waiting.append(waiting)
        async with self.writing:
            if self._waiting:  # nobody took it along
                await to_completion(self._answer_all())
        return waiting.taken()

    async def _answer_all(self) -> None:
        taken, self._waiting = self._waiting, []
        try:
            await self._decide(lambda now: self._answer(taken, now))
        except InferplaneError as error:
            for waiting in taken:
                waiting.answer = error
        self.counts.exchanges += len(taken)

    def _answer(self, taken: list[_Waiting], now: Moment) -> None:
        for waiting in taken:
            holder = waiting.said.holder
            try:
                waiting.answer, _ = self.book.exchange(waiting.said, now)
            except InferplaneError as error:
                waiting.answer = error
            self._touched[holder] = self.book.sequence(holder)

    async def _decide(self, decide: Callable[[Moment], T]) -> T:
        """Decide on a book that is up to date, and write down what changed, in one transaction."""

        async def work(transaction: SharedBudgetTransaction) -> tuple[T, int]:
            seen, self._seen = self._seen, EVERYTHING  # until it is known that this was committed
            news = await transaction.news(seen)
            if seen == EVERYTHING:
                self.book.forget()
            self._touched.clear()
            now = moment(self.clock)
            self.book.merge(news.accounts, news.holders, now)
            decided = decide(now)
            unsaved, self.book.unsaved = self.book.unsaved, {}
            if not unsaved and not self._touched:
                return decided, news.revision
            return decided, await transaction.save(unsaved, self._touched)

        decided, self._seen = await self.store.write(work)
        self.counts.saves += 1
        self._tell()
        return decided

    async def change(self, decide: Decide) -> Budget:
        """Change the budget that is decided on; durable when it returns."""
        async with self.writing:
            return await to_completion(self._change(decide))

    async def _change(self, decide: Decide) -> Budget:
        async def work(transaction: SharedBudgetTransaction) -> tuple[Decision, int]:
            decision = decide(self.book)
            if decision.is_gone:
                return decision, await transaction.remove(decision.budget.uid)
            return decision, await transaction.put(decision.budget)

        def committed(done: tuple[Decision, int]) -> None:
            decision, revision = done
            budget = None if decision.is_gone else decision.budget
            self._budget_changed(BudgetChange(decision.budget.uid, budget, revision))

        return (await self.store.write(work, committed))[0].budget

    async def run(self) -> None:
        """Follow what other processes grant, and end leases in time, until cancelled."""
        tidied = self.clock.monotonic()
        never = asyncio.Event()
        while True:
            await self.clock.wait(never, self.clock.monotonic() + _LOOK_SECONDS)
            is_untidy = self.clock.monotonic() - tidied >= _TIDY_SECONDS
            try:
                await self.refresh()
                if is_untidy or self._is_any_over():
                    async with self.writing:
                        await to_completion(self._decide(self._tidy if is_untidy else self._end))
            except InferplaneError as error:
                _log.error("budgets not read, trying again", error=str(error))
            else:
                tidied = self.clock.monotonic() if is_untidy else tidied

    def _is_any_over(self) -> bool:
        deadline = self.book.next_deadline()
        return deadline is not None and deadline <= self.clock.monotonic()

    def _end(self, now: Moment) -> None:
        for holder in self.book.end_leases(now):
            self._touched[holder] = None
            self.counts.ended += 1
            _log.warning("leases over: the worker didn't come in time", holder=holder)

    def _tidy(self, now: Moment) -> None:
        self._end(now)
        self.book.tidy(now)

    def _tell(self) -> None:
        alerts, self.book.alerts = self.book.alerts, []
        for alert in alerts:
            self.counts.alerts += 1
            self.told(alert)
