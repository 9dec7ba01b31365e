"""Exchanges with metering: at a steady beat, and at once when requests wait."""

import asyncio
from collections.abc import Sequence
from itertools import islice

import structlog

from services.rpc.errors import InferplaneError, UnavailableError
from services.rpc.names import VersionName
from services.worker.domain.budget_share import BudgetUse, Share
from services.worker.domain.budget_terms import cost
from services.worker.domain.caller import Caller
from services.worker.drivers.allowance import Allowances, Waiter
from services.worker.drivers.no_budgets import NOTHING_RESERVED
from services.worker.drivers.reservation import Held
from services.worker.ports.lease_exchange import LeaseAnswer, LeaseExchange, LeaseReport

_log = structlog.get_logger(__name__)

_GRACE_SECONDS = 10.0  # for the first answer
_BEAT_SECONDS = 1.0  # until metering says another
_SCARCE_SECONDS = 0.1  # while others wait for what lies idle here
_GAP_SECONDS = 0.005  # between exchanges, however many ask
_LONGEST_BACKOFF = 0.5
_MOST_USES = 2000  # budgets in one exchange; those that wait come first, the others in turn
_MOST_CALLERS = 1000  # new ones in one exchange
_MOST_STALE = 1000  # rates that are asked for again in one exchange


class LeaseRounds:
    """Fills the allowances. One exchange at a time, so an answer is never older than what is known."""

    def __init__(self, allowances: Allowances, metering: LeaseExchange) -> None:
        self._allowances = allowances
        self._metering = metering
        self._clock = allowances.clock
        self._revision = 0
        self._beat = _BEAT_SECONDS
        self._next_beat = 0.0
        self._price_revision = ""
        self._stale: dict[
            tuple[str, VersionName], None
        ] = {}  # rates of before the last change of prices
        self._failures = 0  # in a row
        self._is_away = False  # for so long that leases have ended

    async def run(self) -> None:
        """Exchange until cancelled."""
        mine = self._allowances
        mine.renewed_until = self._clock.monotonic() + _GRACE_SECONDS
        never = asyncio.Event()
        while True:
            began = self._clock.monotonic()
            mine.asked.clear()
            await self._round()
            if self._failures:
                pause = min(_LONGEST_BACKOFF, 0.05 * 2 ** min(self._failures - 1, 5))
                await self._clock.wait(never, began + pause)
                continue
            await self._clock.wait(mine.asked, self._next_time())
            await self._clock.wait(never, began + _GAP_SECONDS)

    async def end(self) -> None:
        """Give everything back; what can't be told now is settled without this worker."""
        mine = self._allowances
        shares = list(mine.active.values())
        for share in shares:
            share.crave(0, 0)
        uses = [share.tell(ends=True) for share in shares]
        if not uses:
            return
        try:
            await self._metering.exchange(self._report((), uses, ()))
        except UnavailableError as error:
            _log.info("leases left to end by themselves", error=str(error))

    async def _round(self) -> None:
        mine, now = self._allowances, self._clock.monotonic()
        mine.waiting = [waiter for waiter in mine.waiting if not waiter.future.done()]
        shares = self._due(now)
        told = {share.terms.uid: share.tell() for share in shares}
        rates, callers = self._rates(), self._unknown()
        report = self._report(callers, tuple(told.values()), rates)
        try:
            answer = await self._metering.exchange(report)
        except UnavailableError as error:
            self._failed(error)
            return
        self._succeeded()
        mine.renewed_until = now + answer.lease_seconds
        self._beat = answer.next_seconds or _BEAT_SECONDS
        self._take(answer, report, told, now)
        self._serve()

    # What is told.

    def _report(
        self,
        callers: Sequence[Caller],
        uses: Sequence[BudgetUse],
        rates: Sequence[tuple[str, VersionName]],
    ) -> LeaseReport:
        self._allowances.serial += 1
        return LeaseReport(
            sequence=self._allowances.serial,
            revision=self._revision,
            callers=callers,
            uses=uses,
            rates=rates,
        )

    def _due(self, now: float) -> Sequence[Share]:
        """Budgets to speak of: those that requests wait for, and at each beat all in turn."""
        mine = self._allowances
        shares = self._craving()
        if now >= self._next_beat:
            self._next_beat = now + self._beat
            for uid, share in list(mine.active.items()):
                if len(shares) >= _MOST_USES:
                    break
                mine.active[uid] = mine.active.pop(uid)  # the last in turn now
                if uid not in shares:
                    share.crave(0, 0)
                    shares[uid] = share
                share.calm()
        else:
            for uid, share in mine.active.items():
                if uid not in shares and (share.stretch or share.scarce or share.is_low()):
                    share.crave(0, 0)
                    shares[uid] = share
        return list(shares.values())

    def _craving(self) -> dict[str, Share]:
        """Budgets that requests wait for, told how much they need."""
        mine = self._allowances
        needs: dict[str, list[int]] = {}
        found: dict[str, Share] = {}
        for waiter in mine.waiting:
            waiter.asked.clear()  # what was asked before may never have been answered
            for share in mine.callers.get(waiter.caller) or ():
                rates = mine.rates_of(share, waiter.caller, waiter.version)
                if rates is None or share.terms.shadow:
                    continue
                uid = share.terms.uid
                needs.setdefault(uid, []).append(cost(share.terms.unit, waiter.need, rates))
                found[uid] = share
                waiter.asked.add(uid)
        for uid, share in found.items():
            mine.active[uid] = share
            least = 1 if share.terms.stop_streams else min(needs[uid])
            share.crave(sum(needs[uid]), least)
        return found

    def _unknown(self) -> Sequence[Caller]:
        mine = self._allowances
        unknown = dict.fromkeys(
            waiter.caller for waiter in mine.waiting if mine.callers.get(waiter.caller) is None
        )
        return list(unknown)[:_MOST_CALLERS]

    def _rates(self) -> Sequence[tuple[str, VersionName]]:
        """Prices that requests wait for, and some of those that changed meanwhile, maybe."""
        mine = self._allowances
        wanted = {
            (waiter.caller.project, waiter.version): None
            for waiter in mine.waiting
            for share in mine.callers.get(waiter.caller) or ()
            if mine.rates_of(share, waiter.caller, waiter.version) is None
        }
        self._stale = {one: None for one in self._stale if one in mine.rates}
        wanted |= dict.fromkeys(islice(self._stale, _MOST_STALE))
        return list(wanted)

    # What is heard.

    def _take(
        self, answer: LeaseAnswer, report: LeaseReport, told: dict[str, BudgetUse], sent_at: float
    ) -> None:
        mine = self._allowances
        self._revision = answer.revision
        self._forget(answer.changed_projects)
        for caller, found in zip(report.callers, answer.callers, strict=True):
            if found.project_has_none:
                mine.learn_free(caller.project)
            mine.callers.put(caller, tuple(mine.share_of(terms) for terms in found.budgets))
        if answer.price_revision != self._price_revision:
            self._price_revision = answer.price_revision
            self._stale = dict.fromkeys(mine.rates)
        for (project, version), rates in zip(report.rates, answer.rates, strict=True):
            mine.learn_rates(project, version, rates)
            self._stale.pop((project, version), None)
        for grant in answer.grants:
            share = mine.active[grant.uid]
            share.hear(grant, told[grant.uid], report.sequence, sent_at)
            if share.is_gone or not share.is_live:
                del mine.active[grant.uid]

    def _forget(self, projects: Sequence[str] | None) -> None:
        mine = self._allowances
        if projects is None:
            mine.free_projects.clear()
            mine.callers.forget(lambda _caller: True)
        elif projects:
            for project in projects:
                mine.free_projects.pop(project, None)
            meant = frozenset(projects)
            mine.callers.forget(lambda caller: caller.project in meant)

    def _serve(self) -> None:
        """Requests that waited go on, in their order; those that metering was not asked for yet stay."""
        mine = self._allowances
        waiting, mine.waiting = mine.waiting, []
        for waiter in waiting:
            if not waiter.future.done() and not self._served(waiter):
                mine.waiting.append(waiter)
        if any(not waiter.hopes for waiter in mine.waiting):
            mine.asked.set()

    def _served(self, waiter: Waiter) -> bool:
        mine = self._allowances
        caller, version, need = waiter.caller, waiter.version, waiter.need
        waiter.hopes = False
        shares = mine.callers.get(caller)
        if shares is None:
            return False
        if not shares:
            waiter.future.set_result(NOTHING_RESERVED)
            return True
        found = mine.attempt(shares, caller, version, need)
        if isinstance(found, Share) and found.terms.uid in waiter.asked:
            partly = mine.attempt(shares, caller, version, need, partly=True)
            if not isinstance(partly, Held):
                if not mine.is_lacking(found, caller, version, need):
                    return False  # enough is there, only nothing can be taken of this answer: the next one will do
                waiter.hopes = mine.may_hope(found, caller, version, need)
                if not waiter.hopes:
                    waiter.future.set_exception(mine.refusal(found, caller, version, need))
                return not waiter.hopes
            found = partly
        if isinstance(found, Held):
            waiter.future.set_result(found)
            return True
        return False

    def _failed(self, error: UnavailableError) -> None:
        mine = self._allowances
        mine.counts.failures += 1
        self._failures += 1
        if self._clock.monotonic() < mine.renewed_until:
            return  # leases last; whoever needs more waits for the next try
        waiting, mine.waiting = mine.waiting, []
        for waiter in waiting:
            if waiter.future.done():
                continue
            try:
                held = mine.without_metering(waiter.caller, waiter.version, waiter.need)
            except InferplaneError as refusal:
                waiter.future.set_exception(refusal)
            else:
                waiter.future.set_result(held)
        if not self._is_away:
            self._is_away = True
            _log.error("budgets are not kept: leases have ended", error=str(error))

    def _succeeded(self) -> None:
        self._allowances.counts.exchanges += 1
        if self._is_away:
            _log.info("budgets are kept again", failures=self._failures)
        self._is_away, self._failures = False, 0

    def _next_time(self) -> float:
        mine = self._allowances
        if any(share.scarce for share in mine.active.values()):
            return min(self._next_beat, self._clock.monotonic() + _SCARCE_SECONDS)
        return self._next_beat
