"""Both sides of leases without a wire: messages are lost and late, workers and metering die, clocks move."""

import os
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.metering.domain.budget import Budget, BudgetName, BudgetUnit
from services.metering.domain.budget_account import Account
from services.metering.domain.budget_index import BudgetIndex
from services.metering.domain.lease_book import LeaseBook, Moment
from services.metering.domain.lease_exchange import BudgetUse, Exchange, LeaseUse
from services.metering.domain.lease_exchange import Grant as GivenGrant
from services.rpc.calendar_window import WindowKind
from services.rpc.errors import AbortedError
from services.worker.domain import budget_share, budget_terms
from services.worker.domain.budget_share import Lease, Share

LEASE_SECONDS = 10.0
AMOUNT = 1000
EXAMPLES = int(os.environ.get("LEASE_EXAMPLES", "40"))  # more by hand
BUDGET = Budget(
    uid="b1",
    name=BudgetName("acme", "b"),
    unit=BudgetUnit.TOKENS,
    amount=AMOUNT,
    window=WindowKind.MINUTE,
    create_time=datetime(2030, 1, 1, tzinfo=UTC),
)
TERMS = budget_terms.BudgetTerms(
    uid="b1",
    name=str(BUDGET.name),
    unit=budget_terms.BudgetUnit.TOKENS,
    window=WindowKind.MINUTE,
    amount=AMOUNT,
)


@dataclass
class Request:
    """What is on its way to metering."""

    said: Exchange
    told: budget_share.BudgetUse
    sent_at: float


@dataclass
class Holder:
    """A worker: its share, what it lets in, and the one exchange that it waits for."""

    name: str
    share: Share = field(default_factory=lambda: Share(TERMS))
    sequence: int = 0
    renewed_until: float = 0.0
    waits_for: int | None = None
    under_way: list[tuple[Lease, int]] = field(default_factory=list)

    def send(self, needed: int, now: float) -> Request:
        """Say how it is and ask for more; an older exchange is given up by it."""
        self.share.crave(needed, min(needed, 1))
        told = self.share.tell()
        self.sequence += 1
        self.waits_for = self.sequence
        use = BudgetUse(
            uid=told.uid,
            leases=[
                LeaseUse(
                    window_start=lease.window_start,
                    granted=lease.granted,
                    used=lease.used,
                    refused=lease.refused,
                    is_closed=lease.is_closed,
                    serial=lease.serial,
                )
                for lease in told.leases
            ],
            needed=told.needed,
            wanted=told.wanted,
            least=told.least,
        )
        return Request(Exchange(holder=self.name, sequence=self.sequence, uses=[use]), told, now)

    def hear(self, request: Request, grant: GivenGrant) -> None:
        """Take an answer, unless it is one to an older exchange."""
        if self.waits_for != request.said.sequence:
            return
        self.waits_for = None
        self.renewed_until = request.sent_at + LEASE_SECONDS
        heard = budget_share.Grant(
            uid=grant.uid,
            terms=TERMS if grant.budget is not None else None,
            window_start=grant.window_start,
            window_left=grant.window_left,
            granted=grant.granted,
            available=grant.available,
            held_by_others=grant.held_by_others,
            scarce=grant.scarce,
        )
        self.share.hear(heard, request.told, request.said.sequence, request.sent_at)


class Leases(RuleBasedStateMachine):
    """Never is more let in than the budget; at rest nothing is held and what was used is known exactly."""

    workers: dict[str, Holder]

    @initialize()
    def begin(self) -> None:
        self.wall, self.monotonic = 1_900_000_020.0, 1000.0
        self.stored: dict[tuple[str, int], Account] = {}
        self.workers = {}
        self.named = 0
        self.requests: list[Request] = []
        self.answers: list[tuple[Request, GivenGrant]] = []
        self.used: dict[int, int] = {}  # by window, by requests that ended
        self.died_with: dict[int, int] = {}  # by window, under way when their worker died
        self.has_died = False
        self._open_book()
        for _ in range(2):
            self.worker_comes()

    def _open_book(self) -> None:
        index = BudgetIndex(1)
        index.put(BUDGET)
        self.book = LeaseBook(index, LEASE_SECONDS)
        self.book.restore(deepcopy(list(self.stored.values())), self.now)

    @property
    def now(self) -> Moment:
        return Moment(self.wall, self.monotonic)

    def _save(self) -> None:
        for key, account in self.book.unsaved.items():
            if account is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = deepcopy(account)
        self.book.unsaved = {}

    def _let_in(self, start: int) -> int:
        under_way = sum(
            amount
            for holder in self.workers.values()
            for lease, amount in holder.under_way
            if lease.window_start == start
        )
        return self.used.get(start, 0) + self.died_with.get(start, 0) + under_way

    # Workers.

    @precondition(lambda self: len(self.workers) < 4)
    @rule()
    def worker_comes(self) -> None:
        self.named += 1
        self.workers[f"w{self.named}"] = Holder(f"w{self.named}")

    @precondition(lambda self: len(self.workers) > 1)
    @rule(data=st.data())
    def worker_dies(self, data: st.DataObject) -> None:
        holder = self.workers.pop(data.draw(st.sampled_from(sorted(self.workers))))
        self.has_died = True
        for lease, amount in holder.under_way:
            start = lease.window_start
            self.died_with[start] = self.died_with.get(start, 0) + amount

    @rule(data=st.data(), amount=st.integers(1, 400))
    def reserve(self, data: st.DataObject, amount: int) -> None:
        holder = self.workers[data.draw(st.sampled_from(sorted(self.workers)))]
        if holder.share.free(self.monotonic, holder.renewed_until) >= amount:
            lease = holder.share.current
            assert lease is not None
            holder.share.take(lease, amount)
            holder.under_way.append((lease, amount))

    @rule(data=st.data(), part=st.floats(0, 1))
    def settle(self, data: st.DataObject, part: float) -> None:
        holder = self.workers[data.draw(st.sampled_from(sorted(self.workers)))]
        if holder.under_way:
            place = data.draw(st.integers(0, len(holder.under_way) - 1))
            self._settle(holder, place, part)

    def _settle(self, holder: Holder, place: int, part: float) -> None:
        lease, amount = holder.under_way.pop(place)
        used = int(amount * part)
        lease.reserved -= amount
        lease.used += used
        start = lease.window_start
        self.used[start] = self.used.get(start, 0) + used

    # Messages.

    @rule(data=st.data(), needed=st.sampled_from([0, 0, 1, 50, 300, 900]), calms=st.booleans())
    def send(self, data: st.DataObject, needed: int, calms: bool) -> None:
        holder = self.workers[data.draw(st.sampled_from(sorted(self.workers)))]
        if calms:
            holder.share.calm()
        self.requests.append(holder.send(needed, self.monotonic))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), keep=st.sampled_from([False, False, False, True]))
    def arrive(self, data: st.DataObject, keep: bool) -> None:
        place = data.draw(st.integers(0, len(self.requests) - 1))
        request = self.requests[place] if keep else self.requests.pop(place)
        self._arrive(request)

    def _arrive(self, request: Request) -> None:
        try:
            answer, must_save = self.book.exchange(request.said, self.now)
        except AbortedError:
            return
        if must_save:
            self._save()
        self.answers.append((request, answer.grants[0]))

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), is_lost=st.sampled_from([False, False, True]))
    def answer(self, data: st.DataObject, is_lost: bool) -> None:
        place = data.draw(st.integers(0, len(self.answers) - 1))
        request, grant = self.answers.pop(place)
        holder = self.workers.get(request.said.holder)
        if holder is not None and not is_lost:
            holder.hear(request, grant)

    @rule(data=st.data(), needed=st.sampled_from([0, 10, 200, 1000]))
    def exchange(self, data: st.DataObject, needed: int) -> None:
        """Nothing is lost."""
        holder = self.workers[data.draw(st.sampled_from(sorted(self.workers)))]
        self._exchange(holder, needed)

    @rule(data=st.data(), is_late=st.booleans())
    def exchange_without_answer(self, data: st.DataObject, is_late: bool) -> None:
        """Metering hears of it, at once or only after it has heard something newer; the worker never knows."""
        holder = self.workers[data.draw(st.sampled_from(sorted(self.workers)))]
        holder.share.calm()
        request = holder.send(0, self.monotonic)
        if is_late:
            self._exchange(holder, 300)
        self._arrive(request)

    @rule()
    def everybody_takes_all(self) -> None:
        for holder in self.workers.values():
            self._exchange(holder, AMOUNT)
            free = holder.share.free(self.monotonic, holder.renewed_until)
            if free and holder.share.current is not None:
                holder.share.take(holder.share.current, free)
                holder.under_way.append((holder.share.current, free))

    @rule()
    def everybody_is_done(self) -> None:
        for holder in self.workers.values():
            while holder.under_way:
                self._settle(holder, 0, 0.5)
            self._exchange(holder)
            holder.share.calm()

    def _exchange(self, holder: Holder, needed: int = 0) -> None:
        request = holder.send(needed, self.monotonic)
        answer, must_save = self.book.exchange(request.said, self.now)
        if must_save:
            self._save()
        holder.hear(request, answer.grants[0])

    # Metering and time.

    @rule()
    def metering_dies(self) -> None:
        self._open_book()

    @rule()
    def save(self) -> None:
        self._save()

    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds
        self.book.end_leases(self.now)
        self.book.tidy(self.now)

    @rule(seconds=st.sampled_from([-45.0, -2.0, 70.0]))
    def wall_clock_jumps(self, seconds: float) -> None:
        self.wall += seconds

    # What holds.

    @invariant()
    def never_more_than_the_budget(self) -> None:
        starts = {*self.used, *self.died_with} | {
            lease.window_start for h in self.workers.values() for lease, _ in h.under_way
        }
        for start in starts:
            assert self._let_in(start) <= AMOUNT
        for account in self.book.accounts():
            assert account.committed <= AMOUNT

    def teardown(self) -> None:
        if not hasattr(self, "book"):
            return
        for holder in self.workers.values():
            while holder.under_way:
                self._settle(holder, 0, 1.0)
            self._exchange(holder)
        self.book.end_leases(Moment(self.wall, self.monotonic + LEASE_SECONDS))
        # Once workers have nothing to do for a while they hold nothing.
        for _ in range(12):
            for holder in self.workers.values():
                holder.share.calm()
                self._exchange(holder)
        for account in self.book.accounts():
            assert account.held(self.workers) == 0
            if not self.has_died:
                assert account.unreported(self.workers) == 0
                assert account.used == self.used.get(account.window_start, 0)


def test_a_budget_is_exact_whatever_is_lost_and_whoever_dies() -> None:
    """What is let in never exceeds the budget; at rest nothing is held, and nothing was counted twice or not at all."""
    run_state_machine_as_test(
        Leases,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
