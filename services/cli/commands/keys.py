"""Commands on API keys: create, list, get, update, rotate, revoke, rotate-signing."""

import sys
from datetime import UTC, datetime
from enum import StrEnum
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
    from inferplane.metering.v1 import api_key_pb2, api_key_service_pb2

app = typer.Typer(no_args_is_help=True, help="API keys: who is let in, and for what.")

_ONCE = (
    "The token is shown this once and stored nowhere. To use it: export INFERPLANE_API_KEY=TOKEN"
)


class Role(StrEnum):
    """What a key may do; each also what those before it may."""

    CALLER = "caller"
    VIEWER = "viewer"
    DEPLOYER = "deployer"
    ADMIN = "admin"


_Key = Annotated[
    str, typer.Argument(metavar="[PROJECT/]KEY", help="As keys list shows it; project: default.")
]
_Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        envvar="INFERPLANE_KEY_QUIET",
        help="Print the token and nothing else.",
        show_default="off",
    ),
]
_Lifetime = Annotated[
    str | None,
    typer.Option(
        "--lifetime",
        envvar="INFERPLANE_KEY_LIFETIME",
        metavar="SPAN",
        help="Until it expires, such as 12h or 30d; at most 366d.",
        show_default="90d",
    ),
]
_Project = Annotated[
    str,
    typer.Option("--project", envvar="INFERPLANE_KEY_PROJECT", metavar="PROJECT", help="Who pays."),
]
_Role = Annotated[
    Role, typer.Option("--role", envvar="INFERPLANE_KEY_ROLE", help="What it may do.")
]
_Endpoint = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        "-e",
        envvar="INFERPLANE_KEY_ENDPOINTS",
        metavar="ENDPOINT",
        help="An endpoint that it may call; may be given again.",
        show_default="all",
    ),
]
_Label = Annotated[
    str,
    typer.Option("--label", envvar="INFERPLANE_KEY_LABEL", metavar="TEXT", help="For people."),
]
_Tag = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        envvar="INFERPLANE_KEY_TAGS",
        metavar="KEY=VALUE",
        help="A word for reports, beside the project's; may be given again.",
        show_default="none",
    ),
]


@app.command()
def create(
    *,
    project: _Project = "default",
    role: _Role = Role.CALLER,
    endpoint: _Endpoint = None,
    label: _Label = "",
    lifetime: _Lifetime = None,
    tag: _Tag = None,
    quiet: _Quiet = False,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Make a key; its token is shown once."""
    from inferplane.metering.v1 import api_key_pb2

    from services.cli.adapters import accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_project
    from services.cli.domain.reference import parse_endpoint_reference, parse_pairs
    from services.cli.domain.spans import parse_span

    named = [e if e == "*" else parse_endpoint_reference(e) for e in endpoint or ("*",)]
    order = accounts.KeyOrder(
        project=parse_project(project).project,
        label=label,
        role=api_key_pb2.Role.Value(f"ROLE_{role.name}"),
        endpoints=tuple(named),
        tags=parse_pairs("--tag", tag or ()),
        lifetime=parse_span("--lifetime", lifetime) if lifetime else None,
    )
    _show(call(address, lambda edge: accounts.create_key(edge, order)), output, quiet=quiet)


@app.command("list")
def list_(
    *,
    project: Annotated[
        str,
        typer.Option(
            "--project",
            envvar="INFERPLANE_KEYS_PROJECT",
            metavar="PROJECT|-",
            help="Whose keys; -: all projects'.",
        ),
    ] = "-",
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            envvar="INFERPLANE_KEYS_ALL",
            help="Also those that have expired or were revoked.",
            show_default="off",
        ),
    ] = False,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """List keys, oldest first."""
    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_parent

    parent = parse_parent(project)
    found = call(address, lambda edge: accounts.list_keys(edge, parent, ended=all_))
    columns = account_tables.keys(datetime.now(UTC))
    terminal(output).resources(found, columns, "no keys; inferplane keys create makes one")


@app.command()
def get(
    key: _Key,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one key; never its token."""
    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_key

    name = parse_key(key)
    found = call(address, lambda edge: accounts.get_key(edge, name))
    terminal(output).resource(found, account_tables.key_fields(found, datetime.now(UTC)))


@app.command()
def update(
    key: _Key,
    *,
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            envvar="INFERPLANE_KEY_LABEL",
            metavar="TEXT",
            help="For people.",
            show_default="as it is",
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            envvar="INFERPLANE_KEY_TAGS",
            metavar="KEY=VALUE",
            help="Takes the place of all its tags; may be given again.",
            show_default="as they are",
        ),
    ] = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change what is said of a key; its rights and its end are in the token and stay."""
    from inferplane.metering.v1 import api_key_pb2

    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_key
    from services.cli.domain.exit_code import UsageError
    from services.cli.domain.reference import parse_pairs

    fields = [f for f, value in (("label", label), ("tags", tag)) if value is not None]
    if not fields:
        raise UsageError("nothing is to be changed; allowed: --label, --tag")
    wanted = api_key_pb2.ApiKey(
        name=str(parse_key(key)), label=label or "", tags=parse_pairs("--tag", tag or ())
    )
    changed = call(address, lambda edge: accounts.update_key(edge, wanted, fields))
    terminal(output).resource(changed, account_tables.key_fields(changed, datetime.now(UTC)))


@app.command()
def rotate(
    key: _Key,
    *,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            envvar="INFERPLANE_KEY_OVERLAP",
            metavar="SPAN",
            help="How long the old one is still let in; 0: not at all.",
            show_default="1d",
        ),
    ] = None,
    lifetime: Annotated[
        str | None,
        typer.Option(
            "--lifetime",
            envvar="INFERPLANE_KEY_LIFETIME",
            metavar="SPAN",
            help="Until the new one expires, such as 12h or 30d; at most 366d.",
            show_default="as long as the old one was made for",
        ),
    ] = None,
    quiet: _Quiet = False,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Make another key with the same rights; the old one ends after an overlap."""
    from services.cli.adapters import accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_key
    from services.cli.domain.spans import parse_span

    name = parse_key(key)
    spans = (
        parse_span("--overlap", overlap) if overlap else None,
        parse_span("--lifetime", lifetime) if lifetime else None,
    )
    _show(call(address, lambda edge: accounts.rotate_key(edge, name, *spans)), output, quiet=quiet)


@app.command()
def revoke(
    key: _Key,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """End a key, at once and for ever."""
    from services.cli.adapters import account_tables, accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_key

    name = parse_key(key)
    ended = call(address, lambda edge: accounts.revoke_key(edge, name))
    terminal(output).resource(ended, account_tables.key_fields(ended, datetime.now(UTC)))


@app.command("rotate-signing")
def rotate_signing(
    *,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            envvar="INFERPLANE_SIGNING_OVERLAP",
            metavar="SPAN",
            help="How long tokens that are out stay good; 0: all end at once, your own too.",
            show_default="366d",
        ),
    ] = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Sign new tokens with a new key of the platform's own."""
    from services.cli.adapters import accounts
    from services.cli.adapters.edge import call
    from services.cli.domain.spans import parse_span

    span = parse_span("--overlap", overlap) if overlap else None
    kid = call(address, lambda edge: accounts.rotate_signing_key(edge, span))
    out = terminal(output)
    if out.as_json:
        out.json({"kid": kid})
    else:
        out.result(f"new tokens are signed by {kid}")


def _show(
    made: "api_key_service_pb2.CreateApiKeyResponse | api_key_service_pb2.RotateApiKeyResponse",
    output: Format,
    *,
    quiet: bool,
) -> None:
    """A key and its token: the only place that ever prints one."""
    from services.cli.adapters import account_tables
    from services.cli.adapters.terminal import as_dict

    out = terminal(output)
    key: api_key_pb2.ApiKey = made.api_key
    if quiet:
        sys.stdout.write(made.token + "\n")
        return
    if out.as_json:
        out.json({"api_key": as_dict(key), "token": made.token})
        return
    out.resource(key, account_tables.key_fields(key, datetime.now(UTC)))
    out.say(_ONCE)
    # Last and as one line, whatever the terminal's width, so that it can be copied whole.
    sys.stdout.write(f"token  {made.token}\n")
