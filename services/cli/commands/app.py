"""The command line as a whole."""

import typer

from services.cli.commands import about, aliases, endpoints, machine, models, serving, status
from services.cli.commands.options import SERVE_PANEL

app = typer.Typer(
    name="inferplane",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Serves models over gRPC and REST through Envoy. Start with: inferplane demo, or inferplane up.",
)

for commands in (about.app, machine.app, status.app, serving.app):
    app.add_typer(commands)
app.add_typer(models.app, name="models", rich_help_panel=SERVE_PANEL)
app.add_typer(aliases.app, name="aliases", rich_help_panel=SERVE_PANEL)
app.add_typer(endpoints.app, name="endpoints", rich_help_panel=SERVE_PANEL)
app.add_typer(serving.traffic, name="traffic", rich_help_panel=SERVE_PANEL)
