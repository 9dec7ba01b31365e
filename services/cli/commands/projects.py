"""Commands on projects: create, list, get, update."""

from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    AddressOption,
    Format,
    OutputOption,
    terminal,
)

if TYPE_CHECKING:
    from services.cli.adapters.edge import Edge

app = typer.Typer(no_args_is_help=True, help="Projects: who pays for keys, limits and usage.")

_Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Project id.")]
_Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        envvar="INFERPLANE_PROJECT_NAME",
        metavar="TEXT",
        help="For people.",
        show_default="none, or as it is",
    ),
]
_Tag = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        envvar="INFERPLANE_PROJECT_TAGS",
        metavar="KEY=VALUE",
        help="A word for reports; may be given again. On update they replace those there.",
        show_default="none, or as they are",
    ),
]


@app.command()
def create(
    project: _Project,
    *,
    name: _Name = None,
    tag: _Tag = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Create a project; limits set gives it limits, keys create its first key."""
    from inferplane.metering.v1 import project_pb2

    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_project
    from services.cli.domain.reference import parse_pairs

    wanted = project_pb2.Project(
        name=str(parse_project(project)),
        display_name=name or "",
        tags=parse_pairs("--tag", tag or ()),
    )
    made = call(address, lambda edge: accounts.create_project(edge, wanted))
    terminal(output).resource(made, account_tables.project_fields(made))


@app.command("list")
def list_(*, address: AddressOption = DEFAULT_ADDRESS, output: OutputOption = Format.TABLE) -> None:
    """List projects with their limits."""
    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call

    found = call(address, accounts.list_projects)
    terminal(output).resources(found, account_tables.PROJECTS, "no projects")


@app.command()
def get(
    project: _Project,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one project."""
    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_project

    name = parse_project(project)
    found = call(address, lambda edge: accounts.get_project(edge, name))
    terminal(output).resource(found, account_tables.project_fields(found))


@app.command()
def update(
    project: _Project,
    *,
    name: _Name = None,
    tag: _Tag = None,
    enabled: Annotated[
        bool | None,
        typer.Option(
            "--enable/--disable",
            envvar="INFERPLANE_PROJECT_ENABLED",
            help="Whether its keys are let in; takes effect at once.",
            show_default="as it is",
        ),
    ] = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change what is said of a project, or let none of its keys in."""
    from inferplane.metering.v1 import project_pb2

    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_project
    from services.cli.domain.exit_code import UsageError
    from services.cli.domain.reference import parse_pairs

    parsed = parse_project(project)
    given = {
        "display_name": name,
        "tags": tag,
        "disabled": None if enabled is None else not enabled,
    }
    fields = [field for field, value in given.items() if value is not None]
    if not fields:
        raise UsageError("nothing is to be changed; allowed: --name, --tag, --enable, --disable")
    wanted = project_pb2.Project(
        name=str(parsed),
        display_name=name or "",
        tags=parse_pairs("--tag", tag or ()),
        disabled=enabled is False,
    )

    async def work(edge: "Edge") -> project_pb2.Project:
        return await accounts.update_project(edge, wanted, fields)

    changed = call(address, work)
    terminal(output).resource(changed, account_tables.project_fields(changed))
