"""Budgets, as the edge's management API has them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from inferplane.metering.v1 import budget_pb2, budget_service_pb2

from services.cli.adapters.edge import CALL_SECONDS, Edge, pages
from services.cli.adapters.tables import when
from services.cli.domain.amounts import readable
from services.cli.domain.budget_reference import BudgetName
from services.cli.domain.spans import readable_span

_PAGE = 1000


async def set_budget(edge: Edge, budget: budget_pb2.Budget, fields: list[str]) -> budget_pb2.Budget:
    """Make a budget, or change these fields of the one there is."""
    request = budget_service_pb2.UpdateBudgetRequest(
        budget=budget, update_mask=FieldMask(paths=fields), allow_missing=True
    )
    return (await edge.budgets.UpdateBudget(request, timeout=CALL_SECONDS)).budget


async def get_budget(edge: Edge, name: BudgetName) -> budget_pb2.Budget:
    """One budget as it stands."""
    request = budget_service_pb2.GetBudgetRequest(name=str(name))
    return (await edge.budgets.GetBudget(request, timeout=CALL_SECONDS)).budget


async def list_budgets(edge: Edge, parent: str) -> list[budget_pb2.Budget]:
    """The budgets of a project, or of all."""

    def page(token: str) -> Any:
        request = budget_service_pb2.ListBudgetsRequest(
            parent=parent, page_size=_PAGE, page_token=token
        )
        return edge.budgets.ListBudgets(request, timeout=CALL_SECONDS)

    return await pages(page, lambda response: list(response.budgets))


async def delete_budget(edge: Edge, name: BudgetName) -> None:
    """Its calls go on without it."""
    request = budget_service_pb2.DeleteBudgetRequest(name=str(name))
    await edge.budgets.DeleteBudget(request, timeout=CALL_SECONDS)


def short_budget(name: str) -> str:
    """`projects/p/budgets/b` as it is typed: `p/b`."""
    return name.removeprefix("projects/").replace("/budgets/", "/")


def _window_word(window: int) -> str:
    name = budget_pb2.BudgetWindow.Name(budget_pb2.BudgetWindow.ValueType(window))
    return name.removeprefix("BUDGET_WINDOW_").lower()


def _amount(budget: budget_pb2.Budget) -> str:
    kind = budget.WhichOneof("amount")
    if kind is None:
        return ""
    value = getattr(budget, kind)
    told = f"{readable(value)} in money" if kind == "money" else f"{value:,} {kind}"
    return f"{told} a {_window_word(budget.window)}"


def _of(budget: budget_pb2.Budget) -> str:
    told = [budget.key and f"key {budget.key}", budget.endpoint and f"endpoint {budget.endpoint}"]
    return ", ".join(part for part in told if part) or "all calls"


def _mode(budget: budget_pb2.Budget) -> str:
    if budget.shadow:
        return "only counts"
    return "refuses, ends streams" if budget.stop_streams else "refuses"


def _figure(budget: budget_pb2.Budget, text: str) -> str:
    """An amount of the status: grouped as the budget's own is, money as it is."""
    told = readable(text) or "0"
    return f"{int(told):,}" if told.isdecimal() and not budget.HasField("money") else told


def _used(budget: budget_pb2.Budget) -> str:
    used = _figure(budget, budget.status.used)
    lost = _figure(budget, budget.status.unreported)
    return f"{used} and {lost} unreported" if lost != "0" else used


COLUMNS: list[tuple[str, Callable[[budget_pb2.Budget], str]]] = [
    ("BUDGET", lambda budget: short_budget(budget.name)),
    ("AMOUNT", _amount),
    ("OF", _of),
    ("MODE", _mode),
    ("USED", _used),
    ("HELD", lambda budget: _figure(budget, budget.status.held)),
    ("LEFT", lambda budget: _figure(budget, budget.status.remaining)),
    ("REFUSED", lambda budget: f"{budget.status.refused:,}"),
    ("ANEW", lambda budget: when(budget.status.reset_time)),
]


def fields(budget: budget_pb2.Budget, now: datetime) -> dict[str, str]:
    """One budget as it stands."""
    reset = budget.status.reset_time
    left = int(reset.seconds - now.timestamp())
    return {
        "budget": short_budget(budget.name),
        "amount": _amount(budget),
        "of": _of(budget),
        "mode": _mode(budget),
        "used": _used(budget),
        "held": _figure(budget, budget.status.held),
        "left": _figure(budget, budget.status.remaining),
        "refused": f"{budget.status.refused:,}",
        "anew": f"{when(reset)} (in {readable_span(left)})" if reset.seconds else "",
        "alerts": ", ".join(f"{percent} %" for percent in budget.alert_percents),
    }
