"""A budget: how much calls of a project may use in a window of time, and the rules for what people write."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from services.rpc import names
from services.rpc.calendar_window import WindowKind
from services.rpc.errors import FailedPreconditionError, InvalidArgumentError
from services.rpc.names import shown
from services.rpc.update_mask import masked_fields
from services.rpc.violations import Violations

LARGEST_AMOUNT = 10**18  # parts; ten such fit into a signed number of 64 bits, so sums do as well
_MOST_ALERTS = 16
_HIGHEST_PERCENT = 1000
_LONGEST_KEY = 255  # characters; a key of somebody else's issuer is its subject
_CHANGEABLE = ("amount", "shadow", "stop_streams", "alert_percents")
_FIXED = ("unit", "window", "key", "endpoint")
_AMOUNTS = {"tokens", "money", "requests"}


class BudgetUnit(Enum):
    """What is counted; values are those of the protocol."""

    TOKENS = 1
    REQUESTS = 2
    MONEY = 3


@dataclass(frozen=True, slots=True, order=True)
class BudgetName:
    """`projects/{project}/budgets/{budget}`."""

    project: str
    budget: str

    def __str__(self) -> str:
        return f"projects/{self.project}/budgets/{self.budget}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A budget as it is stored."""

    uid: str  # of this one, not of a later one of the same name
    name: BudgetName
    unit: BudgetUnit
    amount: int  # in parts: tokens, requests, or 10^-12 of the currency
    window: WindowKind
    key: str = ""  # empty: of all keys
    endpoint: str = ""  # empty: to all endpoints
    shadow: bool = False
    stop_streams: bool = False
    alert_percents: tuple[int, ...] = ()  # rising
    create_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetInput:
    """A budget as a caller wrote it; None: not said."""

    unit: BudgetUnit | None
    amount: int | None
    window: WindowKind | None
    key: str = ""
    endpoint: str = ""
    shadow: bool = False
    stop_streams: bool = False
    alert_percents: Sequence[int] = ()


def parse_budget(field: str, name: str) -> BudgetName:
    """Parse `projects/{project}/budgets/{budget}`; InvalidArgumentError names `field`."""
    parts = name.split("/")
    if len(parts) != 4 or parts[0] != "projects" or parts[2] != "budgets":
        raise InvalidArgumentError.of_field(
            field,
            f"{shown(name)} is not a resource name; allowed: projects/{{project}}/budgets/{{budget}}",
        )
    return BudgetName(names.check_id(field, parts[1]), names.check_id(field, parts[3]))


def parse_parent(field: str, name: str) -> str:
    """The project's id out of `projects/{project}`; `-` stands for all."""
    head, slash, project = name.partition("/")
    if head != "projects" or not slash or "/" in project:
        raise InvalidArgumentError.of_field(
            field, f"{shown(name)} is not a resource name; allowed: projects/{{project}}"
        )
    return project if project == "-" else names.check_id(field, project)


def checked(given: BudgetInput) -> BudgetInput:
    """What was given, in order; all broken rules at once."""
    found = Violations()
    _check_amount(found, given)
    found.require(given.window is not None, "budget.window", "none; allowed: MINUTE, DAY or MONTH")
    if given.endpoint:
        found.take(names.check_id, "budget.endpoint", given.endpoint)
    found.require(
        len(given.key) <= _LONGEST_KEY and given.key.isprintable(),
        "budget.key",
        f"{shown(given.key)}; allowed: a key's id, at most {_LONGEST_KEY} characters",
    )
    _check_alerts(found, given.alert_percents)
    found.raise_if_any()
    return replace(given, alert_percents=tuple(sorted(set(given.alert_percents))))


def _check_amount(found: Violations, given: BudgetInput) -> None:
    if given.amount is None:
        found.add("budget.amount", "none; allowed: one of tokens, money and requests")
        return
    found.require(
        0 < given.amount <= LARGEST_AMOUNT,
        "budget.amount",
        "out of range; allowed: more than 0, at most 10^18 and a million of the currency",
    )


def _check_alerts(found: Violations, percents: Sequence[int]) -> None:
    found.require(
        len(percents) <= _MOST_ALERTS,
        "budget.alert_percents",
        f"{len(percents)} of them; allowed: at most {_MOST_ALERTS}",
    )
    wrong = [p for p in percents[:_MOST_ALERTS] if not 1 <= p <= _HIGHEST_PERCENT]
    found.require(not wrong, "budget.alert_percents", f"{wrong}; allowed: 1 to {_HIGHEST_PERCENT}")


def fields_of(paths: Sequence[str]) -> tuple[str, ...]:
    """The fields that an update mask names, the amount also by its unit; all if it is empty."""
    known = ["amount" if path in _AMOUNTS else path for path in paths]
    return masked_fields(known, (*_CHANGEABLE, *_FIXED))


def changed(budget: Budget, given: BudgetInput, fields: Sequence[str]) -> Budget:
    """The budget with the fields as given; what is fixed may be repeated, not changed."""
    for field in _FIXED:
        # An amount says its unit, too.
        asked = field in fields or (field == "unit" and "amount" in fields)
        if asked and getattr(given, field) != getattr(budget, field):
            raise FailedPreconditionError(
                f"the {field} of {budget.name} can't be changed; delete it and make another",
                reason="BUDGET_FIELD_FIXED",
                metadata={"budget": str(budget.name), "field": field},
            )
    named = [field for field in _CHANGEABLE if field in fields]
    return replace(budget, **{field: getattr(given, field) for field in named})
