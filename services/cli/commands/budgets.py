"""Commands on budgets: set, list, get, delete."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    AddressOption,
    Format,
    OutputOption,
    terminal,
)

if TYPE_CHECKING:
    from inferplane.metering.v1 import budget_pb2

app = typer.Typer(no_args_is_help=True, help="Budgets: how much may be used in a window of time.")


class Window(StrEnum):
    """Half-open, in UTC."""

    MINUTE = "minute"
    DAY = "day"
    MONTH = "month"


_Budget = Annotated[
    str, typer.Argument(metavar="[PROJECT/]BUDGET", help="A name of yours; project: default.")
]
_AS_IT_IS = "none, or as it is"
_Tokens = Annotated[
    int | None,
    typer.Option(
        "--tokens",
        envvar="INFERPLANE_BUDGET_TOKENS",
        metavar="N",
        min=1,
        help="Input and output tokens together.",
        show_default=_AS_IT_IS,
    ),
]
_Money = Annotated[
    str | None,
    typer.Option(
        "--money",
        envvar="INFERPLANE_BUDGET_MONEY",
        metavar="AMOUNT",
        help="A decimal in the ledger's currency.",
        show_default=_AS_IT_IS,
    ),
]
_Requests = Annotated[
    int | None,
    typer.Option(
        "--requests",
        envvar="INFERPLANE_BUDGET_REQUESTS",
        metavar="N",
        min=1,
        help="Requests.",
        show_default=_AS_IT_IS,
    ),
]
_Per = Annotated[
    Window | None,
    typer.Option(
        "--per",
        envvar="INFERPLANE_BUDGET_PER",
        help="The window; fixed once it is made.",
        show_default="month, or as it is",
    ),
]
_Key = Annotated[
    str,
    typer.Option(
        "--key", envvar="INFERPLANE_BUDGET_KEY", metavar="KEY", help="Only calls with this key."
    ),
]
_Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        envvar="INFERPLANE_BUDGET_ENDPOINT",
        metavar="ENDPOINT",
        help="Only calls to it.",
    ),
]
_Shadow = Annotated[
    bool | None,
    typer.Option(
        "--shadow/--enforce",
        envvar="INFERPLANE_BUDGET_SHADOW",
        help="Count what would be refused, and refuse nothing.",
        show_default="enforce, or as it is",
    ),
]
_StopStreams = Annotated[
    bool | None,
    typer.Option(
        "--stop-streams/--finish-streams",
        envvar="INFERPLANE_BUDGET_STOP_STREAMS",
        help="End a running stream when the budget is used up; else the most that it may use is set aside first.",
        show_default="finish, or as it is",
    ),
]
_Alert = Annotated[
    list[int] | None,
    typer.Option(
        "--alert",
        envvar="INFERPLANE_BUDGET_ALERTS",
        metavar="PERCENT",
        min=1,
        max=1000,
        help="Tell when so much is used, once in a window; may be given again.",
        show_default=_AS_IT_IS,
    ),
]


@app.command("set")
def set_(
    budget: _Budget,
    *,
    tokens: _Tokens = None,
    money: _Money = None,
    requests: _Requests = None,
    per: _Per = None,
    key: _Key = "",
    endpoint: _Endpoint = "",
    shadow: _Shadow = None,
    stop_streams: _StopStreams = None,
    alert: _Alert = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Make a budget, or change one; workers follow within two seconds."""
    from inferplane.metering.v1 import budget_pb2

    from services.cli.adapters import budgets
    from services.cli.adapters.edge import call
    from services.cli.domain.budget_reference import parse_budget

    amounts = {"tokens": tokens, "money": _decimal(money), "requests": requests}
    changes = {"shadow": shadow, "stop_streams": stop_streams, "alert_percents": alert}
    fields = _fields(amounts, changes)
    wanted = budget_pb2.Budget(
        name=str(parse_budget(budget)),
        window=budget_pb2.BudgetWindow.Value(f"BUDGET_WINDOW_{(per or Window.MONTH).name}"),
        key=key.rpartition("/")[2],
        endpoint=endpoint.removeprefix("endpoints/"),
        shadow=bool(shadow),
        stop_streams=bool(stop_streams),
        alert_percents=alert or (),
    )
    for field, amount in amounts.items():
        if amount is not None:
            setattr(wanted, field, amount)
    made = call(address, lambda edge: budgets.set_budget(edge, wanted, fields))
    _show(made, output)


def _decimal(money: str | None) -> str | None:
    from services.cli.domain.amounts import parse_amount, plain

    return None if money is None else plain(parse_amount("--money", money))


def _fields(amounts: Mapping[str, "int | str | None"], changes: Mapping[str, object]) -> list[str]:
    """What is to be written; one amount at most makes sense."""
    from services.cli.domain.exit_code import UsageError

    given = [field for field, value in amounts.items() if value is not None]
    if len(given) > 1:
        raise UsageError("a budget has one amount: --tokens, --money or --requests")
    fields = given + [field for field, value in changes.items() if value is not None]
    if not fields:
        raise UsageError("nothing is said; allowed: --tokens, --money or --requests, and others")
    return fields


@app.command("list")
def list_(
    *,
    project: Annotated[
        str,
        typer.Option(
            "--project",
            envvar="INFERPLANE_BUDGETS_PROJECT",
            metavar="PROJECT|-",
            help="Whose; -: all projects'.",
        ),
    ] = "-",
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """List budgets as they stand."""
    from services.cli.adapters import budgets
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_parent

    parent = parse_parent(project)
    found = call(address, lambda edge: budgets.list_budgets(edge, parent))
    none = "no budgets; inferplane budget set makes one"
    terminal(output).resources(found, budgets.COLUMNS, none)


@app.command()
def get(
    budget: _Budget,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one budget as it stands."""
    from services.cli.adapters import budgets
    from services.cli.adapters.edge import call
    from services.cli.domain.budget_reference import parse_budget

    name = parse_budget(budget)
    _show(call(address, lambda edge: budgets.get_budget(edge, name)), output)


@app.command()
def delete(
    budget: _Budget,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete a budget; its calls go on without it."""
    from services.cli.adapters import budgets
    from services.cli.adapters.edge import call
    from services.cli.domain.budget_reference import parse_budget

    name = parse_budget(budget)
    call(address, lambda edge: budgets.delete_budget(edge, name))
    terminal(output).say(f"deleted budget {name.project}/{name.budget}")


def _show(found: "budget_pb2.Budget", output: Format) -> None:
    from services.cli.adapters import budgets

    terminal(output).resource(found, budgets.fields(found, datetime.now(UTC)))
