"""One budget at this worker: its leases, how much is still free of them, and what to tell and ask next."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.rpc.calendar_window import window_start
from services.worker.domain.budget_terms import BudgetTerms

_NEVER = float("-inf")
_RETRY_SECONDS = 0.1  # while others hold some of it
_PERIOD_SECONDS = 1.0
# From when somebody runs short until all others have given back what lies idle: a beat, after which they know, and a
# tenth of a second, with some room.
_GIVEN_BACK_SECONDS = 1.5
_MOST_OLDER = (
    64  # windows that metering was away for; what was used in older ones nobody asks for any more
)


@dataclass(slots=True)
class Lease:
    """What this worker may use of a budget in one window. Requests are charged to the one they began in."""

    serial: int
    window_start: int  # seconds since 1970
    granted: int = 0
    used: int = 0  # by requests that ended
    reserved: int = 0  # by those under way
    refused: int = 0
    is_closing: bool = False  # its figures are final; told until an answer says that they arrived

    @property
    def free(self) -> int:
        """Neither used nor set aside; negative where more was used than granted."""
        return self.granted - self.used - self.reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUse:
    """A lease as it is told."""

    serial: int
    window_start: int
    granted: int
    used: int
    refused: int
    is_closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """A budget as it is told, and what is asked for."""

    uid: str
    leases: Sequence[LeaseUse]
    needed: int
    wanted: int
    least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What metering answers. None as terms: the budget is gone."""

    uid: str
    terms: BudgetTerms | None
    window_start: int = 0
    window_left: float = 0.0  # seconds
    granted: int = 0
    available: int = 0
    held_by_others: int = 0
    scarce: bool = False


@dataclass(slots=True, eq=False, weakref_slot=True)
class Share:
    """Times are monotonic seconds of this worker."""

    terms: BudgetTerms
    current: Lease | None = None
    older: list[Lease] = field(default_factory=list)  # of windows that are over, and closing ones
    is_gone: bool = False
    window_until: float = _NEVER
    told_at: float = _NEVER  # when the following three were true
    available: int = 0
    held_by_others: int = 0
    scarce: bool = False
    hopes_until: float = _NEVER  # until then others may not have heard that it is scarce
    appetite: int = 0  # what it likes to have free
    taken: int = 0  # since `told_at`
    taken_in_period: int = 0
    needed: int = 0  # by requests that wait
    least: int = 0  # by the smallest of them
    stretch: int = 0  # by streams under way, which would otherwise be stopped

    def free(self, now: float, renewed_until: float) -> int:
        """What may be set aside without asking."""
        if self.current is None or now >= self.window_until or now >= renewed_until:
            return 0
        return max(0, self.current.free)

    def refuses(self, amount: int, now: float, renewed_until: float) -> bool:
        """Whether asking is of no use: metering has said only just that there isn't so much."""
        if now >= self.window_until:
            return False
        fresh = _RETRY_SECONDS if self.held_by_others else _PERIOD_SECONDS
        if now >= self.told_at + fresh:
            return False
        return self.lacks(amount, now, renewed_until)

    def lacks(self, amount: int, now: float, renewed_until: float) -> bool:
        """Whether there wasn't so much when metering spoke of it last."""
        return amount > self.free(now, renewed_until) + self.available

    def may_come_back(self, amount: int, now: float, renewed_until: float) -> bool:
        """Whether so much may be there in a moment: others have only just begun to give back what lies idle."""
        there = self.free(now, renewed_until) + self.available + self.held_by_others
        return now < self.hopes_until and amount <= there

    def take(self, lease: Lease, amount: int) -> None:
        """Set so much of a lease aside. May be more than is free, where nobody minds."""
        lease.reserved += amount
        self.taken += amount
        self.taken_in_period += amount

    def lease_at(self, serial: int, wall: float, now: float) -> Lease:
        """The lease of the window that runs; one without a grant, if metering has not been heard of it."""
        if self.current is not None and now < self.window_until:
            return self.current
        start = window_start(self.terms.window, wall)
        if self.current is None or self.current.window_start != start:
            self._enter(start, serial)
        assert self.current is not None
        return self.current

    def is_low(self) -> bool:
        """Whether to ask now, so that nobody has to wait."""
        lease = self.current
        if lease is None or self.scarce or self.available <= 0 or self.terms.shadow:
            return False
        return lease.free < self.appetite // 4

    @property
    def is_live(self) -> bool:
        """Whether there is anything to tell."""
        return self.current is not None or bool(self.older)

    def retry_after(self, amount: int, now: float) -> float | None:
        """When asking again may help; None: never."""
        if amount > self.terms.amount:
            return None
        under_way = self.current.reserved if self.current is not None else 0
        if self.held_by_others + under_way > 0:
            return min(_PERIOD_SECONDS, max(0.0, self.window_until - now)) or _PERIOD_SECONDS
        return max(_RETRY_SECONDS, self.window_until - now)

    def remaining(self) -> int:
        """Of the whole budget, as far as is known here: what nobody has used or holds, and what is free here."""
        own = self.current.free if self.current is not None else 0
        if self.terms.shadow:
            own = -self.taken
        return max(0, min(self.available + own, self.terms.amount))

    def crave(self, needed: int, least: int) -> None:
        """Requests wait for so much, beside what streams under way would like."""
        self.needed = needed + self.stretch
        self.least = 1 if self.stretch else least
        self.stretch = 0
        if needed:
            self.appetite = min(max(2 * self.appetite, needed), self.terms.amount)

    def calm(self) -> None:
        """A period is over: what it likes to have follows what was taken in it."""
        if self.taken_in_period:
            self.appetite = max(2 * self.taken_in_period, self.appetite // 2)
        else:
            self.appetite //= 4
        self.appetite = min(self.appetite, self.terms.amount)
        self.taken_in_period = 0

    def tell(self, *, ends: bool = False) -> BudgetUse:
        """What there is to say; what is said to be given back is given back by it. `ends`: keep nothing."""
        if ends or self.terms.shadow or (self.scarce and not self.needed):
            self.appetite = 0
        idle = self.appetite + self.needed
        for lease in self.older:
            lease.granted = min(lease.granted, lease.used + lease.reserved)
            lease.is_closing = lease.is_closing or not lease.reserved
        lease_now = self.current
        if lease_now is not None:
            lease_now.granted = min(lease_now.granted, lease_now.used + lease_now.reserved + idle)
            if not lease_now.reserved and not idle and (ends or not self.taken):
                lease_now.is_closing = True
                self.older.append(lease_now)
                self.current = lease_now = None
        free = lease_now.free if lease_now is not None else 0
        leases = [*self.older, *([lease_now] if lease_now is not None else [])]
        leases.sort(key=lambda lease: not lease.is_closing)
        return BudgetUse(
            uid=self.terms.uid,
            leases=[_told(lease) for lease in leases],
            needed=max(0, self.needed - free) if self.needed else 0,
            wanted=max(0, self.appetite - max(0, free - self.needed)),
            least=max(0, self.least - free) if self.needed else 0,
        )

    def hear(self, grant: Grant, told: BudgetUse, serial: int, sent_at: float) -> None:
        """Take the answer to what was told in the exchange of that serial."""
        closed = {lease.serial for lease in told.leases if lease.is_closed}
        self.older = [lease for lease in self.older if lease.serial not in closed]
        if grant.terms is None:
            self.is_gone = True
            self.current, self.older = None, []
            return
        self.terms = grant.terms
        self._enter_told(grant, serial)
        self.window_until = sent_at + grant.window_left
        self.told_at, self.taken = sent_at, 0
        self.available, self.held_by_others = grant.available, grant.held_by_others
        if grant.scarce and not self.scarce:
            self.hopes_until = sent_at + _GIVEN_BACK_SECONDS
        self.scarce = grant.scarce

    def _enter_told(self, grant: Grant, serial: int) -> None:
        if self.current is None and not grant.granted:
            return  # nothing was asked for, and nothing is there
        if self.current is None or self.current.window_start != grant.window_start:
            self._enter(grant.window_start, serial)
        assert self.current is not None
        self.current.granted = grant.granted

    def _enter(self, start: int, serial: int) -> None:
        """Make the window that began then the current one; a clock that stepped back comes to one that was."""
        if self.current is not None:
            self.older.append(self.current)
            del self.older[:-_MOST_OLDER]
        again = next((x for x in self.older if x.window_start == start and not x.is_closing), None)
        if again is not None:
            self.older.remove(again)
        self.current = again or Lease(serial, start)


def _told(lease: Lease) -> LeaseUse:
    return LeaseUse(
        serial=lease.serial,
        window_start=lease.window_start,
        granted=lease.granted,
        used=lease.used,
        refused=lease.refused,
        is_closed=lease.is_closing,
    )
