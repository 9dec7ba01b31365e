"""Command: status, a live picture of the mesh."""

import sys
from typing import Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    RUN_PANEL,
    AddressOption,
    Format,
    OutputOption,
)

app = typer.Typer()


@app.command(rich_help_panel=RUN_PANEL)
def status(
    *,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            envvar="INFERPLANE_STATUS_ONCE",
            help="Print once and end; so it does where stdout is no terminal.",
            show_default="off",
        ),
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            envvar="INFERPLANE_STATUS_INTERVAL",
            metavar="SECONDS",
            min=0.1,
            help="Time between two looks.",
        ),
    ] = 1.0,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show endpoints, versions, workers and rates, live until Ctrl-C; JSON is printed once.

    Rates are over the last 5 s, so `--once` and JSON look twice, one interval apart.
    """
    from services.cli.adapters.edge import call
    from services.cli.adapters.status_screen import show_live, show_once

    if once or output is Format.JSON or not sys.stdout.isatty():
        as_json = output is Format.JSON
        call(address, lambda edge: show_once(edge, interval, as_json=as_json))
    else:
        call(address, lambda edge: show_live(edge, interval))
