"""The area of the ledger: usage, what it costs, reports of both."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc
from inferplane.metering.v1 import (
    ledger_service_pb2_grpc,
    price_service_pb2_grpc,
    usage_service_pb2_grpc,
)

from services.metering.adapters.sql_ledger import SqlLedger
from services.metering.adapters.sql_prices import SqlPrices
from services.metering.adapters.sql_usage import SqlUsage
from services.metering.area import Surroundings
from services.metering.drivers.ledger import Ledger
from services.metering.drivers.price_list import PriceList
from services.metering.drivers.usage_ingest import UsageIngest
from services.metering.servicers.ledger_service import LedgerService
from services.metering.servicers.price_service import PriceService
from services.metering.servicers.usage_service import UsageService


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the area is made of."""

    usage: UsageService
    price: PriceService
    ledger: LedgerService


class LedgerArea:
    """The built area. Other areas use `prices`."""

    services: Sequence[str] = (
        "inferplane.metering.v1.UsageService",
        "inferplane.metering.v1.PriceService",
        "inferplane.metering.v1.LedgerService",
    )

    def __init__(self, parts: _Parts, prices: PriceList) -> None:
        self._parts = parts
        self.prices = prices

    def register(self, server: grpc.aio.Server) -> None:
        usage_service_pb2_grpc.add_UsageServiceServicer_to_server(self._parts.usage, server)
        ledger_service_pb2_grpc.add_LedgerServiceServicer_to_server(self._parts.ledger, server)
        price_service_pb2_grpc.add_PriceServiceServicer_to_server(self._parts.price, server)

    async def start(self) -> None:
        await self.prices.load()

    async def run(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        """Nothing streams."""


def _spent(more: Mapping[tuple[str, int], int]) -> None:
    del more


def build(around: Surroundings) -> LedgerArea:
    """Put the area together."""
    settings = around.settings
    prices = PriceList(SqlPrices(around.database), around.clock)
    usage = SqlUsage(around.database, around.clock)
    ingest = UsageIngest(usage, prices, settings.charge_outcomes, _spent, around.metrics)
    return LedgerArea(
        _Parts(
            usage=UsageService(ingest),
            price=PriceService(prices, settings.currency),
            ledger=LedgerService(
                Ledger(SqlLedger(around.database), around.clock), settings.currency
            ),
        ),
        prices,
    )
