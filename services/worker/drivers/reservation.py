"""What was set aside for one request, in all budgets that bind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.rpc.names import VersionName
from services.worker.domain.budget_share import Lease, Share
from services.worker.domain.budget_terms import (
    BudgetUnit,
    Rates,
    cost,
    cost_before_output,
    cost_of_token,
)
from services.worker.domain.need import Need

# The edge's own limits of requests have the plain name.
_HEADERS = {
    unit: tuple(f"x-ratelimit-{what}-{word}" for what in ("limit", "remaining", "reset"))
    for unit, word in (
        (BudgetUnit.TOKENS, "tokens"),
        (BudgetUnit.REQUESTS, "budget-requests"),
        (BudgetUnit.MONEY, "money"),
    )
}
_PLACES = 12  # decimal places of a part of the currency


@dataclass(slots=True)
class Portion:
    """Of one budget."""

    share: Share
    lease: Lease
    amount: int  # set aside
    full: int  # what the request may need in all
    rates: Rates


class Purse(Protocol):
    """Where it was taken from."""

    def times(self) -> tuple[float, float]:
        """Now, and when leases end unless they are renewed."""
        ...

    def ask_for(self, share: Share, missing: int) -> None:
        """So much more of a budget would be of use."""
        ...

    def learn(self, version: VersionName, used: Need) -> None:
        """A request of the version has used this."""
        ...


class Held:
    """A Reservation; ended by `settle` or `release`, whichever comes first."""

    __slots__ = ("_need", "_open", "_portions", "_purse", "_version")

    def __init__(
        self, purse: Purse, portions: Sequence[Portion], version: VersionName, need: Need
    ) -> None:
        """It has been set aside already, for one request of the version that needs so much."""
        self._purse = purse
        self._portions = portions
        self._version = version
        self._need = need
        self._open = True

    def settle(self, used: Need) -> None:
        """The request has ended and used this."""
        if not self._open:
            return
        self._open = False
        for portion in self._portions:
            lease, rates = portion.lease, portion.rates
            lease.reserved -= portion.amount
            lease.used += cost(portion.share.terms.unit, used, rates)
            if rates.compute_second:
                self._purse.learn(self._version, used)

    def release(self) -> None:
        """Nothing was used."""
        if not self._open:
            return
        self._open = False
        for portion in self._portions:
            portion.lease.reserved -= portion.amount

    def stop_after(self) -> int | None:
        """Output tokens after which the stream must end; grows while more can be had."""
        stops = [
            self._tokens(portion)
            for portion in self._portions
            if portion.amount < portion.full and not portion.share.terms.shadow
        ]
        known = [stop for stop in stops if stop is not None]
        return min(known) if known else None

    def _tokens(self, portion: Portion) -> int | None:
        unit = portion.share.terms.unit
        each = cost_of_token(unit, portion.rates)
        if self._open and each:
            self._extend(portion)
        if portion.amount >= portion.full or not each:
            return None
        return (portion.amount - cost_before_output(unit, self._need, portion.rates)) // each

    def _extend(self, portion: Portion) -> None:
        """Take more of what has become free; only of the window that the request began in."""
        share, lease = portion.share, portion.lease
        missing = portion.full - portion.amount
        if share.current is lease:
            more = min(missing, share.free(*self._purse.times()))
            lease.reserved += more
            portion.amount += more
            missing -= more
        if missing and not share.is_gone:
            self._purse.ask_for(share, missing)

    def trailers(self) -> Sequence[tuple[str, str]]:
        """The tightest budget of each unit."""
        now, _ = self._purse.times()
        if len(self._portions) == 1:
            return _headers(self._portions[0].share, now)
        tightest: dict[BudgetUnit, Share] = {}
        for portion in self._portions:
            share = portion.share
            other = tightest.get(share.terms.unit)
            if other is None or share.remaining() < other.remaining():
                tightest[share.terms.unit] = share
        return [header for share in tightest.values() for header in _headers(share, now)]


def amount_text(unit: BudgetUnit, parts: int) -> str:
    """The amount as a decimal."""
    if unit is not BudgetUnit.MONEY:
        return str(parts)
    whole, rest = divmod(parts, 10**_PLACES)
    return f"{whole}.{rest:0{_PLACES}d}".rstrip("0").rstrip(".")


def _headers(share: Share, now: float) -> Sequence[tuple[str, str]]:
    unit = share.terms.unit
    limit, remaining, reset = _HEADERS[unit]
    return (
        (limit, amount_text(unit, share.terms.amount)),
        (remaining, amount_text(unit, share.remaining())),
        (reset, str(max(0, int(share.window_until - now)))),
    )
