"""Rules for budgets."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from services.metering.domain.budget import (
    Budget,
    BudgetInput,
    BudgetName,
    BudgetUnit,
    changed,
    checked,
    fields_of,
    parse_budget,
)
from services.rpc.calendar_window import WindowKind
from services.rpc.errors import FailedPreconditionError, InvalidArgumentError

GOOD = BudgetInput(unit=BudgetUnit.TOKENS, amount=100, window=WindowKind.DAY)
BUDGET = Budget(
    uid="u",
    name=BudgetName("p", "b"),
    unit=BudgetUnit.TOKENS,
    amount=100,
    window=WindowKind.DAY,
    create_time=datetime(2030, 1, 1, tzinfo=UTC),
)


def test_what_is_wrong_is_told_all_at_once() -> None:
    """Every field that breaks a rule is named in one error."""
    bad = BudgetInput(
        unit=None,
        amount=None,
        window=None,
        endpoint="No such id",
        key="a\nb",
        alert_percents=(0, 50, 1001),
    )
    with pytest.raises(InvalidArgumentError) as error:
        checked(bad)
    assert {violation.field for violation in error.value.violations} == {
        "budget.amount",
        "budget.window",
        "budget.endpoint",
        "budget.key",
        "budget.alert_percents",
    }


@pytest.mark.parametrize("amount", [0, -1, 10**18 + 1])
def test_an_amount_is_more_than_nothing_and_fits_into_a_message(amount: int) -> None:
    """Nothing, less than nothing and what would overflow sums are refused."""
    with pytest.raises(InvalidArgumentError):
        checked(replace(GOOD, amount=amount))


def test_alerts_are_kept_in_order_and_once_each() -> None:
    """Percents rise and are said once."""
    assert checked(replace(GOOD, alert_percents=(90, 50, 90))).alert_percents == (50, 90)


@pytest.mark.parametrize(
    "other",
    [{"unit": BudgetUnit.MONEY}, {"window": WindowKind.MINUTE}, {"key": "k"}, {"endpoint": "e"}],
)
def test_what_a_budget_counts_is_fixed(other: dict[str, Any]) -> None:
    """Unit, window, key and endpoint may be repeated, not changed: what was counted would mean something else."""
    with pytest.raises(FailedPreconditionError) as error:
        changed(BUDGET, replace(GOOD, **other), fields_of([]))
    assert error.value.reason == "BUDGET_FIELD_FIXED"
    assert changed(BUDGET, replace(GOOD, amount=7), fields_of([])).amount == 7


def test_only_masked_fields_change() -> None:
    """The amount may be called by its unit in a mask; other fields stay as they are."""
    given = replace(GOOD, amount=7, shadow=True)
    assert changed(BUDGET, given, fields_of(["tokens"])) == replace(BUDGET, amount=7)
    with pytest.raises(InvalidArgumentError):
        fields_of(["uid"])


@pytest.mark.parametrize("name", ["b", "projects/p", "projects/P/budgets/b", "projects/p/keys/b"])
def test_other_names_are_refused(name: str) -> None:
    """A budget's name has one form."""
    with pytest.raises(InvalidArgumentError):
        parse_budget("name", name)
    assert str(parse_budget("name", "projects/p/budgets/b")) == "projects/p/budgets/b"
