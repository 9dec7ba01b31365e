"""Where prices are kept."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from services.metering.domain.machine_price import MachinePrice
from services.metering.domain.price import Price

T = TypeVar("T")
Committed: TypeAlias = Callable[[T], None]  # called once it is durable, before the next write


class PriceStore(Protocol):
    """Prices, appended and never changed. What was added is durable when it returns."""

    def follow(self, taken: Callable[[Sequence[Price], Sequence[MachinePrice]], None]) -> None:
        """Have somebody hear all there are when other processes made some: before each write here, and soon.

        Never while a write here is between its begin and its `committed`.
        """
        ...

    async def prices(self) -> Sequence[Price]:
        """All, in the order in which they were made."""
        ...

    async def machine_prices(self) -> Sequence[MachinePrice]:
        """All, in the order in which they were made."""
        ...

    async def add(self, price: Price, committed: Committed[Price]) -> Price:
        """Append a price; the store draws its id."""
        ...

    async def add_machine_price(
        self, price: MachinePrice, committed: Committed[MachinePrice]
    ) -> MachinePrice:
        """Append a price of machines; the store draws its id."""
        ...
