"""Alerts of spending: when a project has spent so much of an amount in a month."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.metering.domain.money import parse_amount
from services.metering.domain.period import Grain, period_of
from services.metering.domain.web_address import is_secure
from services.rpc.names import check_id, shown
from services.rpc.violations import Violations

MOST_ALERTS = 1000  # of a project
_MOST_PERCENTS = 20
_MOST_PERCENT = 1000
_LONGEST_URL = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingAlert:
    """Tells when a project has spent so much."""

    project: str
    alert: str
    monthly_amount: int  # 10^-12 of the currency
    percents: tuple[int, ...]
    webhook: str  # empty: none
    create_us: int

    @property
    def name(self) -> str:
        """`projects/{project}/spendingAlerts/{spending_alert}`."""
        return f"projects/{self.project}/spendingAlerts/{self.alert}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An alert that was told."""

    id: int  # as the store numbers them
    project: str
    alert: str
    month: int  # its first hour
    percent: int
    spent: int
    monthly_amount: int
    webhook: str
    create_us: int
    deliver_us: int | None

    @property
    def name(self) -> str:
        """Also what a webhook knows repeats by."""
        month = period_of(Grain.MONTH, self.month)
        return f"projects/{self.project}/spendingAlerts/{self.alert}/notices/{month}-{self.percent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertInput:
    """What a caller says of an alert."""

    name: str
    monthly_amount: str
    percents: Sequence[int]
    webhook: str


def parse_alert(field: str, name: str) -> tuple[str, str]:
    """Project and alert of an alert's name; InvalidArgumentError if it is none."""
    segments = name.split("/")
    violations = Violations()
    fits = len(segments) == 4 and segments[::2] == ["projects", "spendingAlerts"]
    violations.require(
        fits, field, f"{shown(name)}; allowed: projects/{{project}}/spendingAlerts/{{id}}"
    )
    violations.raise_if_any()
    return check_id(field, segments[1]), check_id(field, segments[3])


def checked_alert(given: AlertInput, now_us: int) -> SpendingAlert:
    """The alert; InvalidArgumentError names all that is wrong with it."""
    violations = Violations()
    names = violations.take(parse_alert, "spending_alert.name", given.name)
    amount = violations.take(parse_amount, "spending_alert.monthly_amount", given.monthly_amount)
    violations.require(
        amount is None or amount > 0, "spending_alert.monthly_amount", "allowed: more than 0"
    )
    percents = tuple(sorted(set(given.percents)))
    violations.require(
        1 <= len(percents) <= _MOST_PERCENTS
        and all(1 <= percent <= _MOST_PERCENT for percent in percents),
        "spending_alert.percents",
        f"allowed: 1 to {_MOST_PERCENTS} of 1 to {_MOST_PERCENT}",
    )
    violations.require(
        not given.webhook or (len(given.webhook) <= _LONGEST_URL and is_secure(given.webhook)),
        "spending_alert.webhook",
        f"{shown(given.webhook)}; allowed: https://…, or http:// on loopback",
    )
    violations.raise_if_any()
    assert names is not None
    assert amount is not None
    return SpendingAlert(
        project=names[0],
        alert=names[1],
        monthly_amount=amount,
        percents=percents,
        webhook=given.webhook,
        create_us=now_us,
    )


def reached(alert: SpendingAlert, spent: int) -> Iterable[int]:
    """Percents of the amount that this much reaches."""
    return (p for p in alert.percents if spent * 100 >= alert.monthly_amount * p)
