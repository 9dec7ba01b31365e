"""What a budget's window stands at: what was used, and what holders of leases may still use."""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lease:
    """A holder's part of a budget in one window. Figures are since it began."""

    granted: int = 0  # what the holder may use in all
    used: int = 0  # what it said it has used; may be more than was granted, where it could not ask
    refused: int = 0
    serial: int = 0  # sequence of the exchange that granted it
    sequence: int = 0  # of the exchange that last spoke of it

    @property
    def committed(self) -> int:
        """What nobody else may have."""
        return max(self.granted, self.used)

    @property
    def held(self) -> int:
        """Granted, and not said to be used."""
        return max(0, self.granted - self.used)


@dataclass(slots=True)
class Account:
    """One budget in one window. Never grants more than its amount, whoever dies when: a lease counts in
    full until its holder says what it used, and nobody else can say so.
    """

    uid: str
    window_start: int  # seconds since 1970
    settled: int = 0  # used by leases that are closed
    lost: int = 0  # granted to leases that were given up, and not said to be used
    refused: int = 0  # by leases that are closed
    shortages: int = 0  # times that somebody went short, where several processes grant
    alerted: int = 0  # percent of the amount that was told of already
    leases: dict[str, Lease] = field(default_factory=dict)  # open ones, by holder
    closed: dict[str, int] = field(default_factory=dict)  # serial of the last closed one, by holder

    @property
    def key(self) -> tuple[str, int]:
        """What it is stored by."""
        return (self.uid, self.window_start)

    @property
    def used(self) -> int:
        """What was said to be used."""
        return self.settled + sum(lease.used for lease in self.leases.values())

    @property
    def committed(self) -> int:
        """What was used or is given away."""
        return self.settled + self.lost + sum(lease.committed for lease in self.leases.values())

    @property
    def refusals(self) -> int:
        """Requests that were refused."""
        return self.refused + sum(lease.refused for lease in self.leases.values())

    def held(self, live: Collection[str]) -> int:
        """Given to holders that live."""
        return sum(lease.held for holder, lease in self.leases.items() if holder in live)

    def unreported(self, live: Collection[str]) -> int:
        """Given to holders that went away before they said what they used."""
        ended = (lease.held for holder, lease in self.leases.items() if holder not in live)
        return self.lost + sum(ended)

    def close(self, holder: str) -> None:
        """The holder's lease is over; what it used stays."""
        lease = self.leases.pop(holder)
        self.closed[holder] = max(lease.serial, self.closed.get(holder, 0))
        self.settled += lease.used
        self.refused += lease.refused

    def fold(self, holder: str) -> None:
        """Nobody waits for the holder any more: what it didn't report stays with it."""
        self.lost += self.leases[holder].held
        self.close(holder)


def portion(*, available: int, needed: int, wanted: int, least: int, sharers: int) -> int:
    """What one holder gets of what is left.

    Big where much is left and small near the end, so that no holder sits on what others could use.

    Args:
        available: what nobody has.
        needed: for requests that wait.
        wanted: beyond it, for those that will come.
        least: less than this is of no use.
        sharers: holders that use the budget.
    """
    if available < max(least, 1):
        return 0
    if needed >= available:
        return available
    return needed + min(wanted, (available - needed) // (2 * max(sharers, 1)))
