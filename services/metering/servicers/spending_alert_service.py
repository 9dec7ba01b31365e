"""`inferplane.metering.v1.SpendingAlertService`: alerts of spending, and what they told."""

from typing import Any

import grpc
from inferplane.metering.v1 import spending_alert_pb2
from inferplane.metering.v1 import spending_alert_service_pb2 as pb
from inferplane.metering.v1.spending_alert_service_pb2_grpc import SpendingAlertServiceServicer

from services.metering.domain.money import format_amount
from services.metering.domain.spending import AlertInput, Notice, SpendingAlert
from services.metering.drivers.spending import Spending
from services.metering.servicers.moments import of_microseconds
from services.rpc.names import parse_project
from services.rpc.page import cut, page_request
from services.rpc.times import timestamp

_Context = grpc.aio.ServicerContext[Any, Any]
_ALL = "projects/-"


def _alert_message(alert: SpendingAlert) -> spending_alert_pb2.SpendingAlert:
    return spending_alert_pb2.SpendingAlert(
        name=alert.name,
        monthly_amount=format_amount(alert.monthly_amount),
        percents=alert.percents,
        webhook=alert.webhook,
        create_time=timestamp(of_microseconds(alert.create_us)),
    )


def _notice_message(notice: Notice) -> spending_alert_pb2.SpendingNotice:
    message = spending_alert_pb2.SpendingNotice(
        name=notice.name,
        percent=notice.percent,
        spent=format_amount(notice.spent),
        monthly_amount=format_amount(notice.monthly_amount),
        create_time=timestamp(of_microseconds(notice.create_us)),
    )
    if notice.deliver_us is not None:
        message.deliver_time.CopyFrom(timestamp(of_microseconds(notice.deliver_us)))
    return message


def _project(parent: str) -> str:
    """The project's id; empty: all."""
    return "" if parent == _ALL else parse_project("parent", parent).project


class SpendingAlertService(SpendingAlertServiceServicer):
    """Reads requests, calls the use cases, writes answers."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending

    async def SetSpendingAlert(
        self, request: pb.SetSpendingAlertRequest, context: _Context
    ) -> pb.SetSpendingAlertResponse:
        given = request.spending_alert
        alert = await self._spending.set_alert(
            AlertInput(
                name=given.name,
                monthly_amount=given.monthly_amount,
                percents=list(given.percents),
                webhook=given.webhook,
            )
        )
        return pb.SetSpendingAlertResponse(spending_alert=_alert_message(alert))

    async def ListSpendingAlerts(
        self, request: pb.ListSpendingAlertsRequest, context: _Context
    ) -> pb.ListSpendingAlertsResponse:
        alerts = await self._spending.alerts(_project(request.parent))
        return pb.ListSpendingAlertsResponse(
            spending_alerts=[_alert_message(alert) for alert in alerts]
        )

    async def DeleteSpendingAlert(
        self, request: pb.DeleteSpendingAlertRequest, context: _Context
    ) -> pb.DeleteSpendingAlertResponse:
        await self._spending.delete_alert(request.name)
        return pb.DeleteSpendingAlertResponse()

    async def ListSpendingNotices(
        self, request: pb.ListSpendingNoticesRequest, context: _Context
    ) -> pb.ListSpendingNoticesResponse:
        project = _project(request.parent)
        wanted = page_request(
            f"{request.parent}/spendingNotices", request.page_size, request.page_token
        )
        before = int(wanted.after) if wanted.after else 0
        found = await self._spending.notices(project, before, wanted.size + 1)
        page = cut(wanted, found, lambda notice: str(notice.id))
        return pb.ListSpendingNoticesResponse(
            spending_notices=[_notice_message(notice) for notice in page.items],
            next_page_token=page.next_page_token,
        )
