"""Commands that change or use what is served: deploy, undeploy, traffic, infer."""

from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    SERVE_PANEL,
    AddressOption,
    EndpointArgument,
    Format,
    OutputOption,
    PoolOption,
    terminal,
)

if TYPE_CHECKING:
    from inferplane.registry.v1 import endpoint_pb2

    from services.cli.adapters.edge import Edge
    from services.cli.adapters.rollout import RolledOut

app = typer.Typer()

_Version = Annotated[str, typer.Argument(metavar="MODEL@VERSION", help="For example digits@2.")]

traffic = typer.Typer(no_args_is_help=True, help="Traffic splits of endpoints.")


_Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        "-e",
        envvar="INFERPLANE_DEPLOY_ENDPOINT",
        metavar="ENDPOINT",
        help="What clients call.",
        show_default="the model's id",
    ),
]
_Weight = Annotated[
    float | None,
    typer.Option(
        "--weight",
        "-w",
        envvar="INFERPLANE_DEPLOY_WEIGHT",
        metavar="PERCENT",
        help="Share of the endpoint's traffic; the other versions keep their proportions in the rest.",
        show_default="all of a new endpoint, none of an existing one",
    ),
]
_Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        envvar="INFERPLANE_DEPLOY_TIMEOUT",
        metavar="SECONDS",
        min=0,
        help="Longest wait until a worker has it ready.",
    ),
]


@app.command(rich_help_panel=SERVE_PANEL)
def deploy(
    version: _Version,
    *,
    endpoint: _Endpoint = None,
    weight: _Weight = None,
    pool: PoolOption = "default",
    timeout: _Timeout = 120,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Load a version on a pool's workers, wait until it is ready there, and give it traffic.

    Traffic of an existing endpoint moves only with --weight, and never before the version is ready.
    """
    from services.cli.adapters.edge import call
    from services.cli.adapters.rollout import Rollout, roll_out
    from services.cli.domain.reference import parse_endpoint_reference, parse_version_reference

    name = parse_version_reference(version)
    rollout = Rollout(
        version=name,
        endpoint=parse_endpoint_reference(endpoint or name.model),
        percent=weight,
        pool=pool,
        seconds=timeout,
    )
    out = terminal(output)

    async def work(edge: "Edge") -> "RolledOut":
        return await roll_out(edge, rollout, out)

    done = call(address, work)
    if out.as_json:
        out.resource(done.endpoint, {})
    out.result(done.told)
    out.say(f"next: {done.hint}")


@app.command(rich_help_panel=SERVE_PANEL)
def undeploy(
    version: _Version,
    *,
    pool: Annotated[
        str | None,
        typer.Option(
            "--pool",
            envvar="INFERPLANE_UNDEPLOY_POOL",
            metavar="POOL",
            help="Only there.",
            show_default="every pool",
        ),
    ] = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Unload a version from workers; refused while an endpoint sends traffic to it."""
    from services.cli.adapters.deployment import remove_placements
    from services.cli.adapters.edge import call
    from services.cli.domain.reference import parse_version_reference
    from services.rpc.errors import NotFoundError

    name = parse_version_reference(version)
    pools = call(address, lambda edge: remove_placements(edge, name, pool))
    if not pools:
        raise NotFoundError(f"{name.short} is placed on no pool", reason="NOT_PLACED")
    terminal(output).say(f"undeployed {name.short} from {', '.join(pools)}")


@traffic.command("set")
def set_(
    endpoint: EndpointArgument,
    split: Annotated[
        list[str],
        typer.Argument(
            metavar="V=WEIGHT…",
            help="V is a version (2), an alias (champion) or MODEL@V; shares are weight / sum.",
        ),
    ],
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Replace an endpoint's traffic split by exactly this one; the rest of its policy stays."""
    from services.cli.adapters import tables
    from services.cli.adapters.edge import call
    from services.cli.adapters.routed import wait_routed
    from services.cli.adapters.traffic import set_split
    from services.cli.domain.reference import parse_endpoint_reference, parse_weighted_reference

    name = parse_endpoint_reference(endpoint)
    parts = [parse_weighted_reference(part) for part in split]
    out = terminal(output)

    async def work(edge: "Edge") -> "endpoint_pb2.Endpoint":
        changed = await set_split(edge, name, parts)
        await wait_routed(edge, changed, out)
        return changed

    changed = call(address, work)
    out.resource(changed, tables.endpoint_fields(changed))


_Json = Annotated[
    str,
    typer.Option(
        "--json",
        "-j",
        envvar="INFERPLANE_INFER_JSON",
        metavar="FILE|-",
        help="The request's JSON body.",
    ),
]
_VersionInfer = Annotated[
    str | None,
    typer.Option(
        "--version",
        envvar="INFERPLANE_INFER_VERSION",
        metavar="VERSION",
        help="Ask this version.",
        show_default="by the traffic split",
    ),
]
_TimeoutInfer = Annotated[
    float,
    typer.Option(
        "--timeout",
        envvar="INFERPLANE_INFER_TIMEOUT",
        metavar="SECONDS",
        min=0.001,
        help="Longest wait for the answer.",
    ),
]


@app.command(rich_help_panel=SERVE_PANEL)
def infer(
    endpoint: EndpointArgument,
    *,
    json: _Json,
    version: _VersionInfer = None,
    timeout: _TimeoutInfer = 60,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Send one request of the Open Inference Protocol (REST) and print the answer's JSON."""
    from services.cli.adapters.inference import InferenceCall
    from services.cli.adapters.inference import infer as send
    from services.cli.commands.endpoints import read_text
    from services.cli.domain.reference import parse_endpoint_reference

    name = parse_endpoint_reference(endpoint)
    call = InferenceCall(address, name, version, read_text(json).encode(), timeout)
    terminal(output).json(send(call), indent=None)
