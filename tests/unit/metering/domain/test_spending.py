"""Alerts of spending are checked, and know what is reached."""

import pytest

from services.metering.domain.money import ONE
from services.metering.domain.spending import AlertInput, SpendingAlert, checked_alert, reached
from services.rpc.errors import InvalidArgumentError

GOOD = AlertInput(
    name="projects/acme/spendingAlerts/monthly",
    monthly_amount="100",
    percents=[100, 50],
    webhook="",
)


def given(**changes: object) -> AlertInput:
    fields = {name: getattr(GOOD, name) for name in AlertInput.__slots__} | changes
    return AlertInput(**fields)


def test_a_good_alert_is_taken() -> None:
    """Percents come out in order, each once."""
    alert = checked_alert(given(percents=[100, 50, 50]), 7)
    assert alert == SpendingAlert(
        project="acme",
        alert="monthly",
        monthly_amount=100 * ONE,
        percents=(50, 100),
        webhook="",
        create_us=7,
    )


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "projects/acme"}, "name"),
        ({"name": "projects/ACME/spendingAlerts/a"}, "name"),
        ({"monthly_amount": "0"}, "monthly_amount"),
        ({"monthly_amount": "much"}, "monthly_amount"),
        ({"percents": []}, "percents"),
        ({"percents": [0]}, "percents"),
        ({"percents": [1001]}, "percents"),
        ({"webhook": "http://example.com/hook"}, "webhook"),
        ({"webhook": "ftp://127.0.0.1/"}, "webhook"),
        ({"webhook": "https://[broken"}, "webhook"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, object], field: str) -> None:
    """The field that breaks a rule is named."""
    with pytest.raises(InvalidArgumentError) as caught:
        checked_alert(given(**changes), 7)
    assert {violation.field for violation in caught.value.violations} == {f"spending_alert.{field}"}


@pytest.mark.parametrize(
    "url",
    ["https://example.com/hook", "http://127.0.0.1:8/x", "http://localhost/x", "http://[::1]/"],
)
def test_webhooks_are_safe_ones(url: str) -> None:
    """TLS, or this machine."""
    assert checked_alert(given(webhook=url), 7).webhook == url


def test_what_is_reached() -> None:
    """A percentage is reached with its last unit of money."""
    alert = checked_alert(GOOD, 7)
    assert list(reached(alert, 50 * ONE - 1)) == []
    assert list(reached(alert, 50 * ONE)) == [50]
    assert list(reached(alert, 200 * ONE)) == [50, 100]
