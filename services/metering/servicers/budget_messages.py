"""Budgets between messages and the domain."""

from datetime import UTC, datetime

from inferplane.metering.v1 import budget_pb2

from services.metering.domain import money
from services.metering.domain.budget import Budget, BudgetInput, BudgetUnit
from services.metering.domain.etag import etag_of
from services.metering.domain.lease_book import Standing
from services.metering.drivers.budgets import BudgetState
from services.rpc.calendar_window import WindowKind
from services.rpc.times import timestamp

_WINDOWS = {
    WindowKind.MINUTE: budget_pb2.BUDGET_WINDOW_MINUTE,
    WindowKind.DAY: budget_pb2.BUDGET_WINDOW_DAY,
    WindowKind.MONTH: budget_pb2.BUDGET_WINDOW_MONTH,
}
_KINDS = {value: kind for kind, value in _WINDOWS.items()}
_UNITS = {unit.name.lower(): unit for unit in BudgetUnit}


def budget_input(message: budget_pb2.Budget) -> BudgetInput:
    """The budget as the caller wrote it."""
    said = message.WhichOneof("amount")
    if said is None:
        amount = None
    elif said == "money":
        amount = money.parse_amount("budget.money", message.money)
    else:
        amount = getattr(message, said)
    return BudgetInput(
        unit=None if said is None else _UNITS[said],
        amount=amount,
        window=_KINDS.get(message.window),
        key=message.key,
        endpoint=message.endpoint,
        shadow=message.shadow,
        stop_streams=message.stop_streams,
        alert_percents=tuple(message.alert_percents),
    )


def budget_message(state: BudgetState) -> budget_pb2.Budget:
    """The budget as a message."""
    budget = state.budget
    message = budget_pb2.Budget(
        name=str(budget.name),
        window=_WINDOWS[budget.window],
        key=budget.key,
        endpoint=budget.endpoint,
        shadow=budget.shadow,
        stop_streams=budget.stop_streams,
        alert_percents=budget.alert_percents,
        create_time=timestamp(budget.create_time),
        etag=etag_of(budget),
        status=_status(budget, state.standing),
    )
    if budget.unit is BudgetUnit.MONEY:
        message.money = money.format_amount(budget.amount)
    elif budget.unit is BudgetUnit.TOKENS:
        message.tokens = budget.amount
    else:
        message.requests = budget.amount
    return message


def _status(budget: Budget, standing: Standing) -> budget_pb2.BudgetStatus:
    left = budget.amount - standing.used - standing.held - standing.unreported
    return budget_pb2.BudgetStatus(
        used=amount_text(budget, standing.used),
        held=amount_text(budget, standing.held),
        remaining=amount_text(budget, max(0, left)),
        reset_time=timestamp(datetime.fromtimestamp(standing.window_end, UTC)),
        refused=standing.refused,
        unreported=amount_text(budget, standing.unreported),
    )


def amount_text(budget: Budget, parts: int) -> str:
    """An amount in the budget's unit, as a decimal."""
    return money.format_amount(parts) if budget.unit is BudgetUnit.MONEY else str(parts)
