"""The area of the ledger: usage, what it costs, reports of both."""

import asyncio
from dataclasses import dataclass

import grpc
from inferplane.metering.v1 import (
    ledger_service_pb2,
    ledger_service_pb2_grpc,
    price_service_pb2,
    price_service_pb2_grpc,
    spending_alert_service_pb2,
    spending_alert_service_pb2_grpc,
    usage_report_service_pb2,
    usage_report_service_pb2_grpc,
    usage_service_pb2,
    usage_service_pb2_grpc,
)

from services.metering.adapters.sql_alerts import SqlAlerts
from services.metering.adapters.sql_charges import SqlCharges
from services.metering.adapters.sql_ledger import SqlLedger
from services.metering.adapters.sql_prices import SqlPrices
from services.metering.adapters.sql_reports import SqlReports
from services.metering.adapters.sql_usage import SqlUsage
from services.metering.adapters.table_files import open_table
from services.metering.adapters.webhooks import Webhooks
from services.metering.area import Surroundings
from services.metering.domain.focus import Account
from services.metering.drivers.exports import Exports
from services.metering.drivers.ledger import Ledger
from services.metering.drivers.price_list import PriceList
from services.metering.drivers.reports import Reports
from services.metering.drivers.retention import Retention
from services.metering.drivers.spending import Spending
from services.metering.drivers.tags import TagReads
from services.metering.drivers.usage_ingest import UsageIngest
from services.metering.ports.project_lookup import ProjectLookup
from services.metering.servicers.ledger_service import LedgerService
from services.metering.servicers.price_service import PriceService
from services.metering.servicers.spending_alert_service import SpendingAlertService
from services.metering.servicers.usage_report_service import UsageReportService
from services.metering.servicers.usage_service import UsageService


@dataclass(frozen=True, slots=True)
class _Services:
    """What the area answers."""

    usage: UsageService
    price: PriceService
    ledger: LedgerService
    report: UsageReportService
    alert: SpendingAlertService


@dataclass(frozen=True, slots=True)
class _Work:
    """What the area does by itself."""

    spending: Spending
    retention: Retention
    webhooks: Webhooks


class LedgerArea:
    """The built area. Other areas use `prices`."""

    services = tuple(
        service.full_name
        for module in (
            usage_service_pb2,
            price_service_pb2,
            ledger_service_pb2,
            usage_report_service_pb2,
            spending_alert_service_pb2,
        )
        for service in module.DESCRIPTOR.services_by_name.values()
    )

    def __init__(self, answers: _Services, work: _Work, prices: PriceList) -> None:
        self._answers = answers
        self._work = work
        self.prices = prices

    def register(self, server: grpc.aio.Server) -> None:
        answers = self._answers
        usage_service_pb2_grpc.add_UsageServiceServicer_to_server(answers.usage, server)
        price_service_pb2_grpc.add_PriceServiceServicer_to_server(answers.price, server)
        ledger_service_pb2_grpc.add_LedgerServiceServicer_to_server(answers.ledger, server)
        usage_report_service_pb2_grpc.add_UsageReportServiceServicer_to_server(
            answers.report, server
        )
        spending_alert_service_pb2_grpc.add_SpendingAlertServiceServicer_to_server(
            answers.alert, server
        )

    async def start(self) -> None:
        await self.prices.load()
        await self._work.spending.load()

    async def run(self) -> None:
        async with self._work.webhooks, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work.spending.run())
            tasks.create_task(self._work.retention.run())

    def interrupt(self) -> None:
        """Exports are of the past."""

    def close(self) -> None:
        """Exports end by themselves."""


def build(around: Surroundings, projects: ProjectLookup, tags: TagReads) -> LedgerArea:
    """Put the area together."""
    settings, database, clock = around.settings, around.database, around.clock
    prices = PriceList(SqlPrices(database), projects, clock)
    usage, reports = SqlUsage(database, clock), SqlReports(database)
    webhooks = Webhooks(settings.currency)
    spending = Spending(
        SqlAlerts(database),
        webhooks,
        projects,
        clock,
        metrics=around.metrics,
    )
    ingest = UsageIngest(usage, prices, settings.charge_outcomes, spending.spent, around.metrics)
    exports = Exports(
        (reports, SqlCharges(database)),
        prices,
        tags,
        Account(settings.billing_account, settings.currency),
        open_table,
    )
    answers = _Services(
        usage=UsageService(ingest),
        price=PriceService(prices, settings.currency),
        ledger=LedgerService(
            Ledger(SqlLedger(database), projects, clock),
            settings.currency,
        ),
        report=UsageReportService(
            Reports(reports, prices, tags, clock), exports, settings.currency
        ),
        alert=SpendingAlertService(spending),
    )
    retention = Retention(usage, clock, days=settings.usage_retention_days)
    return LedgerArea(answers, _Work(spending, retention, webhooks), prices)
