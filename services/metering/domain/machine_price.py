"""What machines cost by the hour, whether they compute or not, and whose part of it is how much."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NewType

from services.metering.domain.charge import HOUR_NS

MachinePriceId = NewType("MachinePriceId", int)

MOST_MACHINES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePrice:
    """From `valid_from` on a pool has so many machines at this price. Never changed."""

    id: MachinePriceId
    pool: str
    hourly_amount: int  # 10^-12 of the currency for one machine
    machines: int
    valid_from_ns: int
    create_time: datetime

    @property
    def text(self) -> str:
        """What it says, for the ledger's chain."""
        return (
            f"machinePrices/{self.id} {self.pool} {self.hourly_amount} machines={self.machines}"
            f" valid_from_ns={self.valid_from_ns} made={self.create_time.isoformat()}"
        )


def pool_cost(
    prices: Iterable[MachinePrice], pool: str, since_ns: int, until_ns: int
) -> int | None:
    """What a pool's machines cost in a span of time, in 10^-12 of the currency; None if no price is known for it."""
    own = sorted(
        (price for price in prices if price.pool == pool and price.valid_from_ns < until_ns),
        key=lambda price: (price.valid_from_ns, price.id),
    )
    if not own:
        return None
    total = 0
    for place, price in enumerate(own):
        begin = max(price.valid_from_ns, since_ns)
        end = own[place + 1].valid_from_ns if place + 1 < len(own) else until_ns
        span = max(0, min(end, until_ns) - begin)
        total += price.hourly_amount * price.machines * span
    return total // HOUR_NS
