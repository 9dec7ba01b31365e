"""Commands on alerts of spending: set, list, delete, told."""

from typing import Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    AddressOption,
    Format,
    OutputOption,
    terminal,
)

app = typer.Typer(
    no_args_is_help=True, help="Alerts: who is told when a project has spent so much in a month."
)

_Alert = Annotated[
    str, typer.Argument(metavar="[PROJECT/]ALERT", help="A name of yours; project: default.")
]
_Monthly = Annotated[
    str,
    typer.Option(
        "--monthly",
        envvar="INFERPLANE_ALERT_MONTHLY",
        metavar="AMOUNT",
        help="A decimal in the ledger's currency.",
    ),
]
_Percent = Annotated[
    list[int] | None,
    typer.Option(
        "--percent",
        envvar="INFERPLANE_ALERT_PERCENTS",
        metavar="PERCENT",
        min=1,
        max=1000,
        help="Of the amount; may be given again.",
        show_default="100",
    ),
]
_Webhook = Annotated[
    str,
    typer.Option(
        "--webhook",
        envvar="INFERPLANE_ALERT_WEBHOOK",
        metavar="URL",
        help="Gets a JSON POST; https, or http on this machine.",
    ),
]


@app.command("set")
def set_(
    alert: _Alert,
    *,
    monthly: _Monthly,
    percent: _Percent = None,
    webhook: _Webhook = "",
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Make an alert, or put another in its place; it refuses nothing, that is what budgets do."""
    from inferplane.metering.v1 import spending_alert_pb2

    from services.cli.adapters import alerts
    from services.cli.adapters.edge import call
    from services.cli.domain.amounts import price_of_one

    wanted = spending_alert_pb2.SpendingAlert(
        name=alerts.parse_alert(alert),
        monthly_amount=price_of_one("--monthly", monthly, 1),
        percents=percent or (100,),
        webhook=webhook,
    )
    made = call(address, lambda edge: alerts.set_alert(edge, wanted))
    terminal(output).resource(made, alerts.fields(made))


@app.command("list")
def list_(
    *,
    project: Annotated[
        str,
        typer.Option(
            "--project",
            envvar="INFERPLANE_ALERTS_PROJECT",
            metavar="PROJECT|-",
            help="Whose; -: all projects'.",
        ),
    ] = "-",
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """List alerts."""
    from services.cli.adapters import alerts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_parent

    parent = parse_parent(project)
    found = call(address, lambda edge: alerts.list_alerts(edge, parent))
    none = "no alerts; inferplane alerts set makes one"
    terminal(output).resources(found, alerts.COLUMNS, none)


@app.command()
def delete(
    alert: _Alert,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete an alert."""
    from services.cli.adapters import alerts
    from services.cli.adapters.edge import call

    name = alerts.parse_alert(alert)
    call(address, lambda edge: alerts.delete_alert(edge, name))
    terminal(output).say(f"deleted alert {alert}")


@app.command()
def told(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Project id.")],
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what alerts have told of a project, newest first."""
    from services.cli.adapters import alerts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_project

    name = str(parse_project(project))
    found = call(address, lambda edge: alerts.list_notices(edge, name))
    terminal(output).resources(found, alerts.NOTICES, "nothing was told yet")
