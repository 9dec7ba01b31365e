"""Commands on limits of projects and keys: set, get."""

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
    no_args_is_help=True, help="Limits: how much the edge lets through of a project or key."
)

_Subject = Annotated[
    str, typer.Argument(metavar="PROJECT[/KEY]", help="A project, or a key as keys list shows it.")
]
_Rate = Annotated[
    float | None,
    typer.Option(
        "--requests-per-second",
        envvar="INFERPLANE_LIMIT_REQUESTS_PER_SECOND",
        metavar="N",
        min=0,
        help="Over time; 0: any number.",
        show_default="as it is",
    ),
]
_Burst = Annotated[
    int | None,
    typer.Option(
        "--burst",
        envvar="INFERPLANE_LIMIT_BURST",
        metavar="N",
        min=0,
        help="So many may come at once; 0: as many as in one second.",
        show_default="as it is",
    ),
]
_Concurrent = Annotated[
    int | None,
    typer.Option(
        "--concurrent",
        envvar="INFERPLANE_LIMIT_CONCURRENT",
        metavar="N",
        min=0,
        help="In flight at once; 0: any number.",
        show_default="as it is",
    ),
]
_Shadow = Annotated[
    bool | None,
    typer.Option(
        "--shadow/--enforce",
        envvar="INFERPLANE_LIMIT_SHADOW",
        help="Count what would be refused, and refuse nothing.",
        show_default="as it is",
    ),
]


@app.command("set")
def set_(
    subject: _Subject,
    *,
    requests_per_second: _Rate = None,
    burst: _Burst = None,
    concurrent: _Concurrent = None,
    shadow: _Shadow = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Set limits; what is not said stays as it is. Takes effect at once."""
    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_subject
    from services.cli.domain.exit_code import UsageError

    name = parse_subject(subject)
    given = {
        "requests_per_second": requests_per_second,
        "burst": burst,
        "concurrent_requests": concurrent,
        "shadow": shadow,
    }
    changes = {field: value for field, value in given.items() if value is not None}
    if not changes:
        raise UsageError(
            "no limit is said; allowed: --requests-per-second, --burst, --concurrent, --shadow"
        )
    found = call(address, lambda edge: accounts.change_limits(edge, name, changes))
    terminal(output).resource(found, account_tables.limits_fields(subject, found))


@app.command()
def get(
    subject: _Subject,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the limits of a project or key."""
    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_subject

    name = parse_subject(subject)
    found = call(address, lambda edge: accounts.get_limits(edge, name))
    terminal(output).resource(found, account_tables.limits_fields(subject, found))
