"""Commands on aliases: movable names of versions."""

from typing import Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    AddressOption,
    Format,
    OutputOption,
    terminal,
)

app = typer.Typer(no_args_is_help=True, help="Aliases: movable names of versions.")

_Alias = Annotated[str, typer.Argument(metavar="ALIAS", help="For example champion.")]
_Model = Annotated[str, typer.Argument(metavar="MODEL", help="Model id.")]


@app.command("set")
def set_(
    version: Annotated[str, typer.Argument(metavar="MODEL@VERSION", help="For example digits@2.")],
    alias: _Alias,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Create an alias, or move it to another version; endpoints that use it follow."""
    from services.cli.adapters import catalog, tables
    from services.cli.adapters.edge import call
    from services.cli.domain.reference import parse_version_reference

    name = parse_version_reference(version)
    found = call(address, lambda edge: catalog.set_alias(edge, name, alias))
    terminal(output).resource(found, tables.alias_fields(found))


@app.command("list")
def list_(
    model: _Model,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the aliases of a model."""
    from services.cli.adapters import catalog, tables
    from services.cli.adapters.edge import call

    found = call(address, lambda edge: catalog.list_aliases(edge, model))
    terminal(output).resources(found, tables.ALIASES, f"{model} has no aliases")


@app.command()
def delete(
    reference: Annotated[str, typer.Argument(metavar="MODEL@ALIAS", help="digits@champion.")],
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete an alias; refused while an endpoint uses it."""
    from services.cli.adapters import catalog
    from services.cli.adapters.edge import call
    from services.cli.domain.reference import parse_alias_reference

    name = parse_alias_reference(reference)
    call(address, lambda edge: catalog.delete_alias(edge, name))
    terminal(output).say(f"deleted {reference}")
