"""Commands on captured texts: list, purge. They read files of this machine; no server is asked."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from services.cli.commands.options import (
    Format,
    OutputOption,
    StateDirOption,
    state_directory,
    terminal,
)

app = typer.Typer(
    no_args_is_help=True,
    help="Texts of calls that workers on this machine captured, redacted (INFERPLANE_CAPTURE).",
)


@app.command("list")
def list_(
    *,
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            envvar="INFERPLANE_CAPTURES_PROJECT",
            metavar="PROJECT",
            help="Of this project.",
            show_default="all",
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            "-e",
            envvar="INFERPLANE_CAPTURES_ENDPOINT",
            metavar="ENDPOINT",
            help="Of this endpoint.",
            show_default="all",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            envvar="INFERPLANE_CAPTURES_SINCE",
            metavar="MOMENT",
            help="From then on: a date, a time, or how long ago, such as 12h.",
            show_default="the oldest",
        ),
    ] = None,
    state_dir: StateDirOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List captured calls; whole texts with --output json."""
    from services.cli.adapters import captures, state_path
    from services.cli.domain.spans import parse_moment

    begin = None if since is None else parse_moment("--since", since, datetime.now(UTC))
    state = state_directory(state_dir).path
    with state_path.told(state):
        wanted = captures.Wanted(project=project, endpoint=endpoint, since=begin)
        captures.show(terminal(output), captures.read(state / "capture", wanted))


@app.command()
def purge(
    *,
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            envvar="INFERPLANE_CAPTURES_BEFORE",
            metavar="MOMENT",
            help="Only files that end before then.",
            show_default="all",
        ),
    ] = None,
    state_dir: StateDirOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Remove captured calls, at once; workers go on capturing what their settings say."""
    from services.cli.adapters import captures, state_path
    from services.cli.domain.spans import parse_moment

    end = None if before is None else parse_moment("--before", before, datetime.now(UTC))
    state = state_directory(state_dir).path
    with state_path.told(state):
        removed = captures.purge(state / "capture", end)
    screen = terminal(output)
    if screen.as_json:
        screen.json({"removed_files": removed})
    else:
        screen.result(f"{removed} files removed")
