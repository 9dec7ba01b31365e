"""The area of budgets: how much callers may use, and the leases by which workers know it."""

from collections.abc import Sequence

import grpc
import structlog
from inferplane.metering.v1 import budget_service_pb2_grpc, lease_service_pb2_grpc

from services.metering.adapters.budget_metrics import BudgetMetrics
from services.metering.adapters.sql_budget_store import SqlBudgetStore
from services.metering.adapters.sql_shared_budgets import SqlSharedBudgetStore
from services.metering.area import Surroundings
from services.metering.domain.lease_exchange import Alert
from services.metering.drivers.budgets import Budgets
from services.metering.drivers.desk import Desk
from services.metering.drivers.lease_desk import LeaseDesk
from services.metering.drivers.shared_lease_desk import SharedLeaseDesk
from services.metering.ports.project_lookup import ProjectLookup
from services.metering.ports.rates import RateBook
from services.metering.servicers.budget_messages import amount_text
from services.metering.servicers.budget_service import BudgetService
from services.metering.servicers.lease_service import LeaseService

_log = structlog.get_logger(__name__)


class BudgetArea:
    """The built area."""

    services: Sequence[str] = (
        "inferplane.metering.v1.BudgetService",
        "inferplane.metering.v1.LeaseService",
    )

    def __init__(
        self, around: Surroundings, desk: Desk, projects: ProjectLookup, rates: RateBook
    ) -> None:
        self._around = around
        self._desk = desk
        self._budgets = BudgetService(Budgets(desk, projects))
        self._leases = LeaseService(desk, rates)

    def register(self, server: grpc.aio.Server) -> None:
        budget_service_pb2_grpc.add_BudgetServiceServicer_to_server(self._budgets, server)
        lease_service_pb2_grpc.add_LeaseServiceServicer_to_server(self._leases, server)

    async def start(self) -> None:
        await self._desk.open()
        self._around.metrics.register(BudgetMetrics(self._desk))

    async def run(self) -> None:
        await self._desk.run()

    def interrupt(self) -> None:
        """Nothing streams."""

    def close(self) -> None:
        """Nothing streams."""


def _told(alert: Alert) -> None:
    _log.warning(
        "budget alert",
        budget=str(alert.budget.name),
        percent=alert.percent,
        used=amount_text(alert.budget, alert.used),
        amount=amount_text(alert.budget, alert.budget.amount),
    )


def build(around: Surroundings, projects: ProjectLookup, rates: RateBook) -> BudgetArea:
    """Put the area together."""
    return BudgetArea(around, _desk(around), projects, rates)


def _desk(around: Surroundings) -> Desk:
    clock, lasting = around.clock, around.settings.budget_lease_seconds
    if around.database.process is None:
        return LeaseDesk(SqlBudgetStore(around.database), clock, lasting, _told)
    return SharedLeaseDesk(SqlSharedBudgetStore(around.database), clock, lasting, _told)
