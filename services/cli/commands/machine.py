"""Commands on this machine's own mesh: up, down, worker, logs."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    RUN_PANEL,
    Format,
    LogLevel,
    LogLevelOption,
    OutputOption,
    PoolOption,
    StateDirOption,
    ZoneOption,
    state_directory,
    terminal,
)

app = typer.Typer()

_Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "-w",
        envvar="INFERPLANE_WORKERS",
        min=0,
        max=99,
        help="How many workers.",
        show_default="1 on one core, else 2",
    ),
]
_EdgeAddress = Annotated[
    str,
    typer.Option(
        "--edge-address",
        envvar="INFERPLANE_EDGE_ADDRESS",
        metavar="HOST:PORT",
        help="Where clients call.",
    ),
]
_EdgePort = Annotated[
    int | None,
    typer.Option(
        "--edge-port",
        "-p",
        envvar="INFERPLANE_EDGE_PORT",
        metavar="PORT",
        min=0,
        max=65535,
        help="Another port at that address; 0: any free one.",
        show_default="that of --edge-address",
    ),
]


class Auth(StrEnum):
    """Whether callers need an API key."""

    REQUIRED = "required"
    OFF = "off"


_Auth = Annotated[
    Auth,
    typer.Option(
        "--auth",
        envvar="INFERPLANE_EDGE_AUTH",
        help="Whether callers need an API key; off: whoever reaches the edge may do all.",
    ),
]
_Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        "-d",
        envvar="INFERPLANE_DETACH",
        help="Return when it answers; it goes on running.",
        show_default="off",
    ),
]
_Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        envvar="INFERPLANE_VERBOSE",
        help="Show all the services log, not only warnings.",
        show_default="off",
    ),
]
_Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        envvar="INFERPLANE_UP_TIMEOUT",
        metavar="SECONDS",
        min=1,
        help="Give up if the edge does not answer within this.",
    ),
]
_DrainSeconds = Annotated[
    float,
    typer.Option(
        "--drain-seconds",
        envvar="INFERPLANE_DRAIN_SECONDS",
        metavar="SECONDS",
        min=0.1,
        help="What calls in flight get to finish when it stops.",
    ),
]
_ReadyFd = Annotated[int | None, typer.Option("--ready-fd", hidden=True)]


@app.command(rich_help_panel=RUN_PANEL)
def up(
    *,
    workers: _Workers = None,
    edge_address: _EdgeAddress = DEFAULT_ADDRESS,
    edge_port: _EdgePort = None,
    pool: PoolOption = "default",
    auth: _Auth = Auth.REQUIRED,
    state_dir: StateDirOption = None,
    detach: _Detach = False,
    verbose: _Verbose = False,
    timeout: _Timeout = 60,
    drain_seconds: _DrainSeconds = 30,
    log_level: LogLevelOption = LogLevel.INFO,
    ready_fd: _ReadyFd = None,
) -> None:
    """Run a whole mesh on this machine: registry, metering, router, Envoy and workers.

    What dies is started again. Ctrl-C lets calls in flight finish and leaves no process behind.
    """
    from services.cli.adapters.upstart import UpOrder, edge_of, run_detached, run_here

    order = UpOrder(
        state=state_directory(state_dir),
        edge=edge_of(edge_address, edge_port),
        workers=workers,
        pool=pool,
        auth=auth.value,
        drain_seconds=drain_seconds,
        ready_seconds=timeout,
        log_level=log_level,
        verbose=verbose,
        ready_fd=ready_fd,
    )
    if detach:
        run_detached(order)
    else:
        run_here(order)


@app.command(rich_help_panel=RUN_PANEL)
def down(
    *,
    state_dir: StateDirOption = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            envvar="INFERPLANE_DOWN_TIMEOUT",
            metavar="SECONDS",
            min=0,
            help="Longest wait for it to end.",
        ),
    ] = 60,
    output: OutputOption = Format.TABLE,
) -> None:
    """Stop the mesh that `up` runs, and wait until it has ended."""
    from services.cli.adapters.upstart import stop

    terminal(output).say(stop(state_directory(state_dir), timeout))


@app.command(rich_help_panel=RUN_PANEL)
def worker(
    *,
    pool: PoolOption = "default",
    zone: ZoneOption = "",
    state_dir: StateDirOption = None,
    drain_seconds: _DrainSeconds = 30,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run one more worker in the foreground, joined to the mesh that runs on the state directory.

    Ctrl-C drains it: routes move away from it first, then it ends.
    """
    from services.cli.adapters.extra_worker import WorkerSettings, become_worker

    settings = WorkerSettings(
        pool=pool, zone=zone, drain_seconds=drain_seconds, log_level=log_level
    )
    become_worker(state_directory(state_dir), settings)


@app.command(rich_help_panel=RUN_PANEL)
def logs(
    service: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SERVICE]…",
            help="registry, metering, router, envoy, worker-1 …; worker: all workers.",
        ),
    ] = None,
    *,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            envvar="INFERPLANE_LOG_FOLLOW",
            help="Go on until Ctrl-C.",
            show_default="off",
        ),
    ] = False,
    lines: Annotated[
        int,
        typer.Option(
            "--lines",
            "-n",
            envvar="INFERPLANE_LOG_LINES",
            min=0,
            help="How many of the last lines.",
        ),
    ] = 50,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            envvar="INFERPLANE_LOG_RAW",
            help="As the services wrote them.",
            show_default="off",
        ),
    ] = False,
    state_dir: StateDirOption = None,
) -> None:
    """Show what the services of this machine's mesh logged, in the order of time."""
    from services.cli.adapters.log_reader import LogReader

    state = state_directory(state_dir)
    reader = LogReader(state, service or [], raw=raw)
    if not state.is_held():
        sys.stderr.write(f"{state.nothing_runs}\nThese are the logs of the last one here:\n")
    reader.show(lines)
    if follow:
        reader.follow()
