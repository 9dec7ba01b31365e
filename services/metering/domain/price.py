"""The price book: what one unit costs whom from when on."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import NewType, TypeAlias

from services.metering.domain.unit import Unit

PriceId = NewType("PriceId", int)  # numbered in the order in which they were made

NO_PRICE = PriceId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """From `valid_from` on one unit costs `amount`. Never changed."""

    id: PriceId
    unit: Unit
    amount: int  # 10^-12 of the currency for one unit
    project: str  # ids; empty: any
    model: str
    version: str
    valid_from_ns: int
    create_time: datetime

    @property
    def count_amount(self) -> int:
        """10^-12 of the currency for one of what is counted."""
        return self.amount // self.unit.counts_per_unit

    @property
    def text(self) -> str:
        """What it says, for the ledger's chain."""
        return (
            f"prices/{self.id} {self.unit.word} {self.amount} project={self.project!a}"
            f" model={self.model!a} version={self.version!a} valid_from_ns={self.valid_from_ns}"
            f" made={self.create_time.isoformat()}"
        )


_Scope: TypeAlias = tuple[Unit, str, str, str]


def _by_scope(prices: Iterable[Price]) -> dict[_Scope, list[Price]]:
    """Prices of just the same requests, the one that counts last."""
    found: dict[_Scope, list[Price]] = {}
    for price in sorted(prices, key=lambda price: (price.valid_from_ns, price.id)):
        scope = price.unit, price.project, price.model, price.version
        found.setdefault(scope, []).append(price)
    return found


class PriceBook:
    """Prices as they were known at one moment. Immutable, but for what it remembers of its own answers."""

    def __init__(self, prices: Iterable[Price]) -> None:
        self._prices = tuple(sorted(prices, key=lambda price: price.id))
        self.boundaries_ns = tuple(sorted({price.valid_from_ns for price in self._prices}))
        self._of_scope: dict[_Scope, list[Price]] | None = None  # made when it is asked for
        self._found: dict[tuple[str, str, str, Unit, int], Price | None] = {}

    @property
    def prices(self) -> Sequence[Price]:
        """All of them, in the order in which they were made."""
        return self._prices

    @property
    def last(self) -> PriceId:
        """The newest price."""
        return self._prices[-1].id if self._prices else NO_PRICE

    def as_of(self, last: PriceId) -> "PriceBook":
        """The book as it was when `last` was its newest price."""
        if last >= self.last:
            return self
        return PriceBook(price for price in self._prices if price.id <= last)

    def with_price(self, price: Price) -> "PriceBook":
        """The book with one more."""
        return PriceBook((*self._prices, price))

    def find(self, project: str, model: str, version: str, unit: Unit, at_ns: int) -> Price | None:
        """The price that counts at a moment: the most exact, of those the newest that has begun, then the last made."""
        if self._of_scope is None:
            self._of_scope = _by_scope(
                self._prices
            )  # others may do the same, in threads of their own
        for scope in product((project, ""), (model, ""), (version, "")):  # the most exact first
            prices = self._of_scope.get((unit, *scope), ())
            begun = bisect_right(prices, at_ns, key=lambda price: price.valid_from_ns)
            if begun:
                return prices[begun - 1]
        return None

    def find_in(self, scope: tuple[str, str, str], unit: Unit, segment: int) -> Price | None:
        """As `find`, after that many of `boundaries_ns` have passed; remembered."""
        if segment == 0:
            return None
        key = (*scope, unit, segment)
        try:
            return self._found[key]
        except KeyError:
            found = self.find(*scope, unit, self.boundaries_ns[segment - 1])
        if len(self._found) > _REMEMBERED:
            self._found.clear()  # others may be reading, in threads of their own
        self._found[key] = found
        return found


_REMEMBERED = 20_000
