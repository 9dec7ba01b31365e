"""Alerts of spending, as the edge's management API has them."""

from collections.abc import Callable
from typing import Any

from inferplane.metering.v1 import spending_alert_pb2, spending_alert_service_pb2

from services.cli.adapters.edge import CALL_SECONDS, Edge, pages
from services.cli.adapters.tables import when
from services.cli.domain.account_reference import DEFAULT_PROJECT
from services.cli.domain.amounts import readable
from services.cli.domain.exit_code import UsageError
from services.rpc.names import check_id

_PAGE = 1000


def parse_alert(text: str) -> str:
    """`research/monthly`, or `monthly` of the project `default`, as the resource's name."""
    project, _, alert = text.rpartition("/")
    if "/" in project:
        raise UsageError(f"{text!r} names no alert; allowed: PROJECT/ALERT")
    owner = check_id("project", project or DEFAULT_PROJECT)
    return f"projects/{owner}/spendingAlerts/{check_id('alert', alert)}"


async def set_alert(
    edge: Edge, alert: spending_alert_pb2.SpendingAlert
) -> spending_alert_pb2.SpendingAlert:
    """Make it, or put it in the place of the one there is."""
    request = spending_alert_service_pb2.SetSpendingAlertRequest(spending_alert=alert)
    return (await edge.alerts.SetSpendingAlert(request, timeout=CALL_SECONDS)).spending_alert


async def list_alerts(edge: Edge, parent: str) -> list[spending_alert_pb2.SpendingAlert]:
    """The alerts of a project, or of all."""
    request = spending_alert_service_pb2.ListSpendingAlertsRequest(parent=parent)
    response = await edge.alerts.ListSpendingAlerts(request, timeout=CALL_SECONDS)
    return list(response.spending_alerts)


async def delete_alert(edge: Edge, name: str) -> None:
    """Delete one."""
    request = spending_alert_service_pb2.DeleteSpendingAlertRequest(name=name)
    await edge.alerts.DeleteSpendingAlert(request, timeout=CALL_SECONDS)


async def list_notices(edge: Edge, parent: str) -> list[spending_alert_pb2.SpendingNotice]:
    """What was told, newest first."""

    def page(token: str) -> Any:
        request = spending_alert_service_pb2.ListSpendingNoticesRequest(
            parent=parent, page_size=_PAGE, page_token=token
        )
        return edge.alerts.ListSpendingNotices(request, timeout=CALL_SECONDS)

    return await pages(page, lambda response: list(response.spending_notices))


def _short(name: str) -> str:
    return name.removeprefix("projects/").replace("/spendingAlerts/", "/")


def _percents(alert: spending_alert_pb2.SpendingAlert) -> str:
    return ", ".join(f"{percent} %" for percent in alert.percents)


COLUMNS: list[tuple[str, Callable[[spending_alert_pb2.SpendingAlert], str]]] = [
    ("ALERT", lambda alert: _short(alert.name)),
    ("A MONTH", lambda alert: readable(alert.monthly_amount)),
    ("AT", _percents),
    ("WEBHOOK", lambda alert: alert.webhook),
]

NOTICES: list[tuple[str, Callable[[spending_alert_pb2.SpendingNotice], str]]] = [
    ("TOLD", lambda notice: _short(notice.name).replace("/notices/", " ")),
    ("AT", lambda notice: f"{notice.percent} %"),
    ("SPENT", lambda notice: readable(notice.spent)),
    ("OF", lambda notice: readable(notice.monthly_amount)),
    ("TIME", lambda notice: when(notice.create_time)),
    ("WEBHOOK TOOK IT", lambda notice: when(notice.deliver_time)),
]


def fields(alert: spending_alert_pb2.SpendingAlert) -> dict[str, str]:
    """One alert."""
    return {
        "alert": _short(alert.name),
        "a month": readable(alert.monthly_amount),
        "at": _percents(alert),
        "webhook": alert.webhook,
    }
