"""Commands on endpoints: apply, list, get, delete."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    AddressOption,
    EndpointArgument,
    Format,
    OutputOption,
    terminal,
)

if TYPE_CHECKING:
    from inferplane.registry.v1 import endpoint_pb2

    from services.cli.adapters.edge import Edge
    from services.cli.adapters.manifest import Applied

_LONGEST_TEXT = 256 << 20  # bytes; devices and pipes may have no end

app = typer.Typer(no_args_is_help=True, help="Endpoints: what clients call, and its traffic.")


@app.command()
def apply(
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            envvar="INFERPLANE_APPLY_FILE",
            metavar="FILE|-",
            help="YAML, one or several documents.",
        ),
    ],
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Create endpoints, or bring them to what is written."""
    from services.cli.adapters import manifest
    from services.cli.adapters.edge import call
    from services.cli.adapters.routed import wait_routed

    wanted = manifest.parse(read_text(file), file)
    out = terminal(output)

    async def work(edge: "Edge") -> "list[tuple[endpoint_pb2.Endpoint, Applied]]":
        done = []
        for endpoint in wanted:
            done.append(await manifest.apply(edge, endpoint))
            await wait_routed(edge, done[-1][0], out)
            out.say(f"{endpoint.name} {done[-1][1].value}")
        return done

    applied = call(address, work)
    if out.as_json:
        from services.cli.adapters.terminal import as_dict

        out.json([{"applied": how.value, "endpoint": as_dict(one)} for one, how in applied])


def read_text(file: str) -> str:
    """The text of a file, or of standard input for `-`."""
    from services.cli.domain.exit_code import UsageError

    try:
        if file == "-":
            raw = sys.stdin.buffer.read(_LONGEST_TEXT + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(_LONGEST_TEXT + 1)
        if len(raw) > _LONGEST_TEXT:
            raise UsageError(f"{file}: is longer than {_LONGEST_TEXT} bytes")
        return raw.decode()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: is no UTF-8 text: {error}") from error


@app.command("list")
def list_(*, address: AddressOption = DEFAULT_ADDRESS, output: OutputOption = Format.TABLE) -> None:
    """List endpoints with their traffic."""
    from services.cli.adapters import tables
    from services.cli.adapters.edge import call
    from services.cli.adapters.traffic import list_endpoints

    found = call(address, list_endpoints)
    none = "no endpoints; inferplane deploy MODEL@VERSION makes one"
    terminal(output).resources(found, tables.ENDPOINTS, none)


@app.command()
def get(
    endpoint: EndpointArgument,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one endpoint with its whole traffic policy."""
    from services.cli.adapters import tables
    from services.cli.adapters.edge import call
    from services.cli.adapters.traffic import get_endpoint
    from services.cli.domain.reference import parse_endpoint_reference

    name = parse_endpoint_reference(endpoint)
    found = call(address, lambda edge: get_endpoint(edge, name))
    terminal(output).resource(found, tables.policy_fields(found))


@app.command()
def delete(
    endpoint: EndpointArgument,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete an endpoint; its versions stay loaded."""
    from services.cli.adapters import catalog
    from services.cli.adapters.edge import call
    from services.cli.domain.reference import parse_endpoint_reference

    name = parse_endpoint_reference(endpoint)
    call(address, lambda edge: catalog.delete_endpoint(edge, name))
    terminal(output).say(f"deleted endpoint {name}")
