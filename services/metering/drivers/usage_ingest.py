"""Takes batches of usage: checks them, has them stored at the prices that count, tells what followed."""

from collections.abc import Callable, Collection, Mapping

import structlog
from prometheus_client import CollectorRegistry, Counter

from services.metering.domain.charge import Tariff
from services.metering.domain.usage import Outcome, UsageBatch, check_batch
from services.metering.drivers.price_list import PriceList
from services.metering.ports.usage_store import Recorded, UsageStore

_log = structlog.get_logger(__name__)


class UsageIngest:
    """Used on the event loop."""

    def __init__(
        self,
        store: UsageStore,
        prices: PriceList,
        charged: Collection[Outcome],
        spent: Callable[[Mapping[tuple[str, int], int]], None],
        metrics: CollectorRegistry,
    ) -> None:
        """Assign only.

        Args:
            store: where it goes.
            prices: what it costs.
            charged: outcomes that are charged.
            spent: hears what projects spent more by the month, once that is durable.
            metrics: where counts of rows are declared.
        """
        self._store = store
        self._prices = prices
        self._charged = frozenset(charged)
        self._spent = spent
        self._rows = Counter(
            "inferplane_usage_rows", "Rows of usage that were stored.", registry=metrics
        )
        self._lost = Counter(
            "inferplane_usage_lost_attempts",
            "Attempts that gave way to another one of their request.",
            registry=metrics,
        )

    async def record(self, batch: UsageBatch) -> int:
        """Store what is new in a batch; which row of its source is wanted next."""
        recorded = await self._store.record(check_batch(batch), self._tariff, self._recorded)
        return recorded.next_sequence

    def _tariff(self) -> Tariff:
        return Tariff(self._prices.book, self._charged)

    def _recorded(self, recorded: Recorded) -> None:
        self._rows.inc(recorded.rows)
        self._lost.inc(recorded.lost)
        if recorded.spent:
            self._spent(recorded.spent)
