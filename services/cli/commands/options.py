"""Options that several commands take; each shows its default and the name of its environment variable."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main

if TYPE_CHECKING:
    from services.cli.adapters.state_directory import StateDirectory
    from services.cli.adapters.terminal import Terminal

DEFAULT_ADDRESS = "127.0.0.1:8080"
RUN_PANEL = "Run"
SERVE_PANEL = "Serve"
ACCOUNT_PANEL = "Who calls, and what it cost"


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


class LogLevel(StrEnum):
    """The least level that services log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Invocation:
    """What of the command line must be known when a command fails: given to typer as the context's object."""

    def __init__(self, *, as_json: bool) -> None:
        """`as_json`: errors are printed as JSON."""
        self.as_json = as_json


def _remember(context: typer.Context, value: Format) -> Format:
    if isinstance(context.obj, Invocation):
        context.obj.as_json = value is Format.JSON
    return value


def _address(context: typer.Context, value: str) -> str:
    """The mesh of this machine is found wherever it listens, unless another one is named."""
    source = context.get_parameter_source("address")
    if source is None or source.name != "DEFAULT":
        return value
    from services.cli.adapters import access

    return access.edge_here() or value


AddressOption = Annotated[
    str,
    typer.Option(
        "--address",
        "-a",
        envvar="INFERPLANE_ADDRESS",
        metavar="HOST:PORT",
        help="The edge to call; https://HOST:PORT where it speaks TLS.",
        show_default=f"that of the mesh that runs on the state directory, else {DEFAULT_ADDRESS}",
        callback=_address,
    ),
]
OutputOption = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        envvar="INFERPLANE_OUTPUT",
        help="A table for people, or JSON (also for errors).",
        callback=_remember,
        is_eager=True,
    ),
]
StateDirOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="INFERPLANE_STATE_DIR",
        metavar="DIR",
        help="Where models, logs and sockets lie. One `up` per directory.",
        show_default="the user's state directory",
        file_okay=False,
    ),
]
PoolOption = Annotated[
    str,
    typer.Option("--pool", envvar="INFERPLANE_POOL", metavar="POOL", help="Pool of workers."),
]
ZoneOption = Annotated[
    str,
    typer.Option(
        "--zone",
        envvar="INFERPLANE_ZONE",
        metavar="ZONE",
        help="Where it is: edges of the same zone prefer it.",
        show_default="none",
    ),
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option("--log-level", envvar="INFERPLANE_LOG_LEVEL", help="Least level in the logs."),
]
EndpointArgument = Annotated[
    str, typer.Argument(metavar="ENDPOINT", help="Endpoint id: what clients call as model name.")
]


def terminal(output: Format) -> "Terminal":
    """Where results go."""
    from services.cli.adapters.terminal import Terminal

    return Terminal(as_json=output is Format.JSON)


def state_directory(path: Path | None) -> "StateDirectory":
    """The state directory that was asked for, or the user's own."""
    from services.cli.adapters.state_directory import StateDirectory, default_path

    return StateDirectory(path or default_path())


def _give_key(value: str | None) -> str | None:
    if value is not None:
        from services.cli.adapters import access

        access.give(value, "--api-key or INFERPLANE_API_KEY")
    return value


def _trust(value: Path | None) -> Path | None:
    if value is not None:
        from services.cli.adapters import edge_target

        edge_target.trust(value)
    return value


_ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="INFERPLANE_API_KEY",
        metavar="TOKEN",
        help="The API key to call with; others see what is typed, so the variable is safer.",
        show_default="admin.key of the mesh that runs on the state directory",
        expose_value=False,
        callback=_give_key,
    ),
]
_Authorities = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="INFERPLANE_CA",
        metavar="FILE",
        help="Whom an edge at https://HOST:PORT is checked with, in PEM.",
        show_default="the system's authorities",
        dir_okay=False,
        expose_value=False,
        callback=_trust,
    ),
]
_calling = typer.Typer()


@_calling.command()
def _call(*, api_key: _ApiKey = None, ca: _Authorities = None) -> None:
    """Has the options that every command has which calls the edge; nobody runs it."""


def calling_options() -> list[Any]:
    """`--api-key` and `--ca`, ready for a command."""
    options = typer.main.get_command(_calling).params
    return [option for option in options if option.name in ("api_key", "ca")]
