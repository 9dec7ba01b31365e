"""A desk of leases, as budgets and services see it, and what is decided about budgets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from services.metering.domain.budget import Budget
from services.metering.domain.lease_book import LeaseBook, Moment
from services.metering.domain.lease_exchange import Answer, Exchange
from services.rpc.clock import Clock


@dataclass(slots=True)
class LeaseCounts:
    """For metrics; only grow."""

    exchanges: int = 0
    saves: int = 0
    ended: int = 0  # holders that didn't come in time
    alerts: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """A budget is to be as it says, or to go."""

    budget: Budget
    is_gone: bool = False


Decide: TypeAlias = Callable[[LeaseBook], Decision]  # may raise, and may be asked again


def moment(clock: Clock) -> Moment:
    """The clock's."""
    return Moment(clock.now().timestamp(), clock.monotonic())


class Desk(Protocol):
    """Answers holders, and changes budgets."""

    @property
    def book(self) -> LeaseBook:
        """As it is known here."""
        ...

    @property
    def counts(self) -> LeaseCounts:
        """What it did."""
        ...

    @property
    def clock(self) -> Clock:
        """Its own."""
        ...

    @property
    def lease_seconds(self) -> float:
        """Without an exchange, after which a holder is over."""
        ...

    async def open(self) -> None:
        """Read everything; before the first exchange."""
        ...

    async def run(self) -> None:
        """Work that nobody waits for, until cancelled."""
        ...

    async def refresh(self) -> None:
        """See to it that the book knows all that was written before now."""
        ...

    async def exchange(self, said: Exchange) -> Answer:
        """Take down what a holder says and answer it. AbortedError if it is older than what it said before."""
        ...

    async def change(self, decide: Decide) -> Budget:
        """Change the budget that is decided on, on a book that is up to date; durable when it returns."""
        ...
