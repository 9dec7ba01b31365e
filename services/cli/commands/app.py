"""The command line as a whole."""

import sys
from typing import Annotated, Any

import typer
import typer.main

from services.cli.commands import (
    about,
    alerts,
    aliases,
    backup,
    budgets,
    ca,
    captures,
    endpoints,
    generation,
    keys,
    ledger,
    limits,
    machine,
    models,
    prices,
    projects,
    serving,
    status,
    tuning,
    usage,
)
from services.cli.commands.options import ACCOUNT_PANEL, RUN_PANEL, SERVE_PANEL, calling_options

_HELP_OPTIONS = ["--help", "-h"]

app = typer.Typer(
    name="inferplane",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": _HELP_OPTIONS},
    help="Serves models, language models among them, over gRPC, REST and OpenAI's API through Envoy."
    " Start with: inferplane demo, or inferplane up.",
    epilog="In a checkout, for who develops it: test, lint, typecheck, codegen, lock, operators, release-protos.",
)

for commands in (about.app, machine.app, status.app, serving.app, generation.app, tuning.app):
    app.add_typer(commands)
app.add_typer(models.app, name="models", rich_help_panel=SERVE_PANEL)
app.add_typer(aliases.app, name="aliases", rich_help_panel=SERVE_PANEL)
app.add_typer(endpoints.app, name="endpoints", rich_help_panel=SERVE_PANEL)
app.add_typer(ca.app, name="ca", rich_help_panel=RUN_PANEL)
app.add_typer(backup.app, name="backup", rich_help_panel=RUN_PANEL)
app.add_typer(serving.traffic, name="traffic", rich_help_panel=SERVE_PANEL)
for group, name in (
    (projects.app, "projects"),
    (keys.app, "keys"),
    (limits.app, "limits"),
    (budgets.app, "budget"),
    (usage.app, "usage"),
    (prices.app, "prices"),
    (prices.costs, "costs"),
    (ledger.app, "ledger"),
    (ledger.credits_, "credits"),
    (alerts.app, "alerts"),
    (captures.app, "captures"),
):
    app.add_typer(group, name=name, rich_help_panel=ACCOUNT_PANEL)


def _say_version(wanted: bool) -> None:
    if wanted:
        from services.cli.adapters.release import version

        sys.stdout.write(f"inferplane {version()}\n")
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option("--version", callback=_say_version, is_eager=True, help="Print the release."),
]


@app.callback()
def _root(*, version: _Version = False) -> None:
    """Options before any command."""


def command() -> Any:
    """The command line, ready to run."""
    root = typer.main.get_command(app)
    _add_calling_options(root)
    _show_no_type_of_flags(root)
    return root


def _add_calling_options(command: Any) -> None:
    """Which key to show and whom to trust: these options go with `--address`."""
    for place, option in enumerate(command.params):
        if option.name == "address":
            command.params[place + 1 : place + 1] = calling_options()
            break
    for inner in getattr(command, "commands", {}).values():
        _add_calling_options(inner)


def _show_no_type_of_flags(command: Any) -> None:
    """In help a flag stands alone: typer would write `<bool>` beside it, as if it took a value."""
    context = typer.Context(command, help_option_names=_HELP_OPTIONS)
    for option in command.get_params(context):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _show_no_type_of_flags(inner)
