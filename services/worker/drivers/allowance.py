"""Budgets of the callers of this worker: set aside from leases, without asking as long as these last."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

import structlog

from services.rpc.clock import Clock
from services.rpc.errors import ResourceExhaustedError, UnavailableError
from services.rpc.names import VersionName
from services.worker.domain.budget_share import Lease, Share
from services.worker.domain.budget_terms import (
    BudgetTerms,
    BudgetUnit,
    Rates,
    cost,
    cost_before_output,
    cost_of_token,
)
from services.worker.domain.caller import Caller
from services.worker.domain.caller_cache import CallerCache
from services.worker.domain.need import Need
from services.worker.drivers.no_budgets import NOTHING_RESERVED
from services.worker.drivers.reservation import Held, Portion, amount_text
from services.worker.ports.allowance import Reservation

_log = structlog.get_logger(__name__)

Shares: TypeAlias = tuple[Share, ...]

_MOST_CALLERS = 20_000
_MOST_PROJECTS = 10_000
_MOST_WAITING = 10_000
_MOST_HOPING = 1000  # of them, for what others may give back
_MOST_RATES = 10_000
_NO_RATES = Rates()
_MONEY = BudgetUnit.MONEY


@dataclass(slots=True)
class AllowanceCounts:
    """For metrics; only grow."""

    exchanges: int = 0
    failures: int = 0  # exchanges without an answer
    waits: int = 0  # requests that waited for an exchange
    unmetered: int = 0  # requests let in without a lease, because metering was away
    refused: dict[str, int] = field(default_factory=lambda: {"minute": 0, "day": 0, "month": 0})
    shadow_refused: int = 0


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that needs an answer of metering."""

    caller: Caller
    version: VersionName
    need: Need
    future: asyncio.Future[Reservation]
    asked: set[str] = field(
        default_factory=set
    )  # uids of budgets that metering was asked about for it in the last exchange
    hopes: bool = False  # for what others may give back, which the next exchange in turn will tell


class Allowances:
    """An Allowance. `LeaseRounds` fills it by asking metering."""

    def __init__(
        self, clock: Clock, failure: Literal["open", "closed"], most_callers: int = _MOST_CALLERS
    ) -> None:
        """Assign only.

        Args:
            clock: monotonic for leases, wall time only where metering can't say which window runs.
            failure: what happens to requests when leases have ended and metering does not answer.
            most_callers: of whom budgets are remembered.
        """
        self.clock = clock
        self._failure = failure
        self.counts = AllowanceCounts()
        self.callers: CallerCache[Shares] = CallerCache(most_callers)
        self.free_projects: dict[str, None] = {}  # that have no budgets at all
        self.shares: WeakValueDictionary[str, Share] = WeakValueDictionary()
        self.active: dict[str, Share] = {}  # those with something to tell
        self.rates: dict[tuple[str, VersionName], Rates] = {}
        self.waiting: list[Waiter] = []
        self.renewed_until = inf  # until the first exchange begins
        self.serial = 0
        self.asked = asyncio.Event()
        self._compute_seconds: dict[VersionName, float] = {}  # of a request, lately

    # What the caller of a request uses.

    def reserve(
        self, caller: Caller, version: VersionName, need: Need
    ) -> Reservation | Awaitable[Reservation]:
        """Set the need aside; waits only for what metering must be asked."""
        shares = self.callers.get(caller)
        if shares is None:
            if caller.is_shadow or not caller.project:
                return NOTHING_RESERVED
            return self._of_unknown(caller, version, need)
        if not shares:
            return NOTHING_RESERVED
        found = self.attempt(shares, caller, version, need)
        if isinstance(found, Held):
            return found
        now = self.clock.monotonic()
        if now >= self.renewed_until:
            return self.without_metering(caller, version, need)
        if found is not None and self._is_useless(found, caller, version, need, now):
            partly = self.attempt(shares, caller, version, need, partly=True)
            if isinstance(partly, Held):
                return partly
            if not self.may_hope(found, caller, version, need):
                raise self.refusal(found, caller, version, need)
            return self._wait(caller, version, need, hopes=True)
        return self._wait(caller, version, need)

    def _of_unknown(
        self, caller: Caller, version: VersionName, need: Need
    ) -> Reservation | Awaitable[Reservation]:
        if caller.project in self.free_projects:
            self.callers.put(caller, ())
            return NOTHING_RESERVED
        if self.clock.monotonic() >= self.renewed_until:
            return self.without_metering(caller, version, need)
        return self._wait(caller, version, need)

    async def _wait(
        self, caller: Caller, version: VersionName, need: Need, *, hopes: bool = False
    ) -> Reservation:
        if len(self.waiting) >= _MOST_WAITING:
            raise UnavailableError(
                f"{len(self.waiting)} requests wait for their budgets already",
                reason="BUDGETS_BUSY",
                retry_after=1.0,
            )
        future: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
        self.waiting.append(Waiter(caller, version, need, future, hopes=hopes))
        self.counts.waits += 1
        if not hopes:
            self.asked.set()
        try:
            return await future
        except asyncio.CancelledError:
            # It may have been set aside just before its caller went.
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().release()
            raise

    # What is set aside.

    def attempt(
        self,
        shares: Shares,
        caller: Caller,
        version: VersionName,
        need: Need,
        *,
        partly: bool = False,
    ) -> Held | Share | None:
        """Set aside in all budgets or in none.

        Returns the budget that has too little, or None if rates must be asked for first. `partly`: streams that
        may be stopped take what there is.
        """
        now, portions = self.clock.monotonic(), []
        for share in shares:
            if share.is_gone:
                continue
            rates = self.rates_of(share, caller, version)
            if rates is None:
                return None
            if rates.compute_second and not need.compute_seconds:
                need = self._expecting(version, need)
            full = cost(share.terms.unit, need, rates)
            amount = full
            if not share.terms.shadow:
                free = share.free(now, self.renewed_until)
                if free < full:
                    amount = _part(share.terms, need, rates, free) if partly else 0
                    if not amount:
                        return share
            portions.append((share, amount, full, rates))
        return self._take(portions, version, need, now)

    def _take(
        self,
        portions: Sequence[tuple[Share, int, int, Rates]],
        version: VersionName,
        need: Need,
        now: float,
    ) -> Held:
        taken = []
        for share, amount, full, rates in portions:
            if share.terms.shadow and share.told_at > 0 and full > share.remaining():
                self.counts.shadow_refused += 1
                self._lease(share, now).refused += 1
            lease = share.current if now < share.window_until else None
            lease = lease or self._lease(share, now)
            share.take(lease, amount)
            self.active[share.terms.uid] = share
            if share.is_low():
                self.asked.set()
            taken.append(Portion(share, lease, amount, full, rates))
        return Held(self, taken, version, need)

    def without_metering(self, caller: Caller, version: VersionName, need: Need) -> Reservation:
        """Let it in or refuse it, as the settings say: leases have ended and metering does not answer."""
        if self._failure == "closed":
            raise UnavailableError(
                "budgets can't be asked for: metering does not answer",
                reason="METERING_UNAVAILABLE",
                retry_after=1.0,
            )
        self.counts.unmetered += 1
        shares = self.callers.get(caller) or ()
        now = self.clock.monotonic()
        portions = []
        for share in shares:
            rates = self.rates_of(share, caller, version) or _NO_RATES
            full = cost(share.terms.unit, need, rates)
            portions.append((share, full, full, rates))
        if not portions:
            return NOTHING_RESERVED
        return self._take(portions, version, need, now)

    def rates_of(self, share: Share, caller: Caller, version: VersionName) -> Rates | None:
        """What the version costs, for budgets of money; None: not known yet."""
        if share.terms.unit is not _MONEY:
            return _NO_RATES
        return self.rates.get((caller.project, version))

    def learn_rates(self, project: str, version: VersionName, rates: Rates) -> None:
        """Metering said so."""
        if len(self.rates) >= _MOST_RATES:
            self.rates.clear()
        self.rates[project, version] = rates

    def learn_free(self, project: str) -> None:
        """It has no budgets at all."""
        if len(self.free_projects) >= _MOST_PROJECTS:
            self.free_projects.clear()
        self.free_projects[project] = None

    def share_of(self, terms: BudgetTerms) -> Share:
        """This worker's share of a budget, the same for all callers whom it binds."""
        share = self.shares.get(terms.uid)
        if share is None:
            share = self.shares[terms.uid] = Share(terms)
        share.terms = terms
        return share

    # Refusals.

    def refusal(
        self, share: Share, caller: Caller, version: VersionName, need: Need
    ) -> ResourceExhaustedError:
        """Counted, and said so that a program can read it."""
        terms, now = share.terms, self.clock.monotonic()
        self._lease(share, now).refused += 1
        self.active[terms.uid] = share
        window = terms.window.name.lower()
        self.counts.refused[window] += 1
        asked = self._full(share, caller, version, need)
        limit, left = (amount_text(terms.unit, n) for n in (terms.amount, share.remaining()))
        reset = max(0.0, share.window_until - now)
        wanted = amount_text(terms.unit, asked)
        unit = terms.unit.name.lower()
        retry_after = share.retry_after(asked, now)
        return ResourceExhaustedError(
            f"{terms.name} is used up: {limit} {unit} a {window}, {left} of them left,"
            f" {wanted} asked for; {_what_helps(retry_after, reset)}",
            reason="BUDGET_EXHAUSTED",
            metadata={
                "budget": terms.name,
                "unit": unit,
                "window": window,
                "limit": limit,
                "remaining": left,
                "needed": wanted,
                "reset": f"{reset:.0f}",
            },
            retry_after=retry_after,
        )

    def _is_useless(
        self, share: Share, caller: Caller, version: VersionName, need: Need, now: float
    ) -> bool:
        if share.terms.stop_streams:  # any of it is of use
            return share.refuses(share.free(now, self.renewed_until) + 1, now, self.renewed_until)
        return share.refuses(self._full(share, caller, version, need), now, self.renewed_until)

    def is_lacking(self, share: Share, caller: Caller, version: VersionName, need: Need) -> bool:
        """Whether metering has said that so much is not there; else it is there, only not granted to this worker."""
        full, now = self._full(share, caller, version, need), self.clock.monotonic()
        return share.lacks(full, now, self.renewed_until)

    def may_hope(self, share: Share, caller: Caller, version: VersionName, need: Need) -> bool:
        """Whether to wait for what others give back rather than refuse; each shortage has one such moment."""
        full, now = self._full(share, caller, version, need), self.clock.monotonic()
        return len(self.waiting) < _MOST_HOPING and share.may_come_back(
            full, now, self.renewed_until
        )

    def _full(self, share: Share, caller: Caller, version: VersionName, need: Need) -> int:
        rates = self.rates_of(share, caller, version) or _NO_RATES
        return cost(share.terms.unit, need, rates)

    # What the shares need to know.

    def times(self) -> tuple[float, float]:
        return self.clock.monotonic(), self.renewed_until

    def _lease(self, share: Share, now: float) -> Lease:
        if share.current is None or now >= share.window_until:
            self.serial += (
                1  # for a lease that metering did not grant; higher than those that it did
            )
        return share.lease_at(self.serial, self.clock.now().timestamp(), now)

    def ask_for(self, share: Share, missing: int) -> None:
        # Any of it is of use.
        if not share.refuses(1, self.clock.monotonic(), self.renewed_until):
            share.stretch = max(share.stretch, missing)
            self.asked.set()

    def _expecting(self, version: VersionName, need: Need) -> Need:
        """Compute seconds are known only afterwards: what requests of this version took lately is set aside."""
        return replace(need, compute_seconds=self._compute_seconds.get(version, 0.0))

    def learn(self, version: VersionName, used: Need) -> None:
        if not used.compute_seconds:
            return
        known = self._compute_seconds.get(version, used.compute_seconds)
        if len(self._compute_seconds) >= _MOST_RATES:
            self._compute_seconds.clear()
        self._compute_seconds[version] = known + (used.compute_seconds - known) / 8


def _part(terms: BudgetTerms, need: Need, rates: Rates, free: int) -> int:
    """What a stream that may be stopped takes of what is free: at least enough for one token; 0: nothing."""
    each = cost_of_token(terms.unit, rates)
    before = cost_before_output(terms.unit, need, rates)
    if not terms.stop_streams or not each or not need.output_tokens or free < before + each:
        return 0
    return before + (free - before) // each * each


def _what_helps(retry_after: float | None, reset: float) -> str:
    """What a refusal says of asking again."""
    if retry_after is None:
        return "the whole budget is less"
    if retry_after < reset:
        return f"others hold some that may come back, try again in {retry_after:.0f} s"
    return f"it begins anew in {reset:.0f} s"
