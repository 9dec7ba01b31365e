"""The command line as a whole."""

import typer

from services.cli.commands import about, aliases, endpoints, machine, models, serving, status

_RUN = "Run"
_SERVE = "Serve"

app = typer.Typer(
    name="inferplane",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Serves models over gRPC and REST through Envoy. Start with: inferplane demo, or inferplane up.",
)

app.command(rich_help_panel=_RUN)(about.demo)
app.command(rich_help_panel=_RUN)(machine.up)
app.command(rich_help_panel=_RUN)(machine.down)
app.command(rich_help_panel=_RUN)(status.status)
app.command(rich_help_panel=_RUN)(machine.logs)
app.command(rich_help_panel=_RUN)(machine.worker)
app.add_typer(models.app, name="models", rich_help_panel=_SERVE)
app.add_typer(aliases.app, name="aliases", rich_help_panel=_SERVE)
app.add_typer(endpoints.app, name="endpoints", rich_help_panel=_SERVE)
app.command(rich_help_panel=_SERVE)(serving.deploy)
app.command(rich_help_panel=_SERVE)(serving.undeploy)
app.add_typer(serving.traffic, name="traffic", rich_help_panel=_SERVE)
app.command(rich_help_panel=_SERVE)(serving.infer)
app.command()(about.version)
