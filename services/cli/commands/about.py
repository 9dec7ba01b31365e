"""Commands that need no mesh: version, demo."""

import json
import sys
from typing import Annotated

import typer

from services.cli.commands.options import RUN_PANEL, Format, OutputOption

app = typer.Typer()


@app.command()
def version(*, output: OutputOption = Format.TABLE) -> None:
    """Print the release."""
    from services.cli.adapters.release import version as release

    if output is Format.JSON:
        sys.stdout.write(json.dumps({"version": release()}) + "\n")
    else:
        sys.stdout.write(f"inferplane {release()}\n")


@app.command(rich_help_panel=RUN_PANEL)
def demo(
    *,
    exit_: Annotated[
        bool,
        typer.Option(
            "--exit",
            envvar="INFERPLANE_DEMO_EXIT",
            help="End when it is through; 0 only if every answer was right.",
            show_default="off",
        ),
    ] = False,
    edge_port: Annotated[
        int | None,
        typer.Option(
            "--edge-port",
            "-p",
            envvar="INFERPLANE_DEMO_EDGE_PORT",
            metavar="PORT",
            min=0,
            max=65535,
            help="Where clients call, on 127.0.0.1; 0: any free port.",
            show_default="8080, or a free one if that is taken",
        ),
    ] = None,
) -> None:
    """Serve real models on this machine: train, push, deploy, call, split traffic and change it live."""
    from services.cli.demo.command import demo as run

    run(exit_=exit_, port=edge_port)
