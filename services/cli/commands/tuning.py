"""The command that has a version measured: tune."""

from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    SERVE_PANEL,
    AddressOption,
    Format,
    OutputOption,
    terminal,
)

if TYPE_CHECKING:
    from services.cli.adapters.edge import Edge
    from services.cli.adapters.tuning import Tuned

app = typer.Typer()

_Version = Annotated[str, typer.Argument(metavar="MODEL@VERSION", help="For example digits@2.")]
_Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        envvar="INFERPLANE_TUNE_TIMEOUT",
        metavar="SECONDS",
        min=0,
        help="Longest wait until a worker has measured.",
    ),
]


@app.command(rich_help_panel=SERVE_PANEL)
def tune(
    version: _Version,
    *,
    timeout: _Timeout = 300,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Have a worker measure which threads, instances and batch size are fastest for a version.

    What was found before is forgotten. The version must be placed; it is served meanwhile.
    """
    from services.cli.adapters import tuning
    from services.cli.adapters.edge import call
    from services.cli.domain.reference import parse_version_reference

    name = parse_version_reference(version)
    out = terminal(output)

    async def work(edge: "Edge") -> "Tuned":
        return await tuning.tune(edge, name, timeout, out)

    tuned = call(address, work)
    if out.as_json:
        out.json(tuned.as_json())
        return
    rows = [] if tuned.before is None else [tuned.before.row("before")]
    out.table(tuning.HEADERS, [*rows, tuned.after.row("after")])
