"""Commands on usage: a report, one request, an export."""

import shutil
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
    from services.cli.adapters.edge import Edge
    from services.cli.adapters.usage import Selection

app = typer.Typer(help="Usage: what was used, by whom, and what it cost.")

_DIMENSIONS = "model, version, project, key, endpoint, hour, day, month, pool or tag:KEY"


class Measure(StrEnum):
    """What a chart shows."""

    CHARGED = "charged"
    TOKENS = "tokens"
    REQUESTS = "requests"
    COMPUTE = "compute"


class FileFormat(StrEnum):
    """What an export is written as."""

    CSV = "csv"
    PARQUET = "parquet"
    FOCUS = "focus"


class Content(StrEnum):
    """What an export has a line for."""

    REQUESTS = "requests"
    HOURS = "hours"


_By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        envvar="INFERPLANE_USAGE_BY",
        metavar="DIMENSION",
        help=f"A line for each: {_DIMENSIONS}; may be given twice.",
        show_default="model",
    ),
]
_Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        envvar="INFERPLANE_USAGE_SINCE",
        metavar="MOMENT",
        help="A date or time (UTC), or how long ago, such as 7d; whole hours are counted.",
        show_default="begin of this month",
    ),
]
_Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        envvar="INFERPLANE_USAGE_UNTIL",
        metavar="MOMENT",
        help="As --since.",
        show_default="now",
    ),
]
_Project = Annotated[
    str,
    typer.Option(
        "--project", envvar="INFERPLANE_USAGE_PROJECT", metavar="PROJECT", help="Only its requests."
    ),
]
_Key = Annotated[
    str,
    typer.Option("--key", envvar="INFERPLANE_USAGE_KEY", metavar="KEY", help="Only of this key."),
]
_Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint", envvar="INFERPLANE_USAGE_ENDPOINT", metavar="ENDPOINT", help="Only to it."
    ),
]
_Model = Annotated[
    str,
    typer.Option(
        "--model", envvar="INFERPLANE_USAGE_MODEL", metavar="MODEL[@VERSION]", help="Only by it."
    ),
]
_Shadows = Annotated[
    bool,
    typer.Option(
        "--shadows",
        envvar="INFERPLANE_USAGE_SHADOWS",
        help="Mirrored copies, which nobody pays, instead of requests.",
        show_default="off",
    ),
]
_Chart = Annotated[
    bool,
    typer.Option(
        "--chart",
        envvar="INFERPLANE_USAGE_CHART",
        help="Draw it below the table.",
        show_default="off",
    ),
]
_Measure = Annotated[
    Measure | None,
    typer.Option(
        "--measure",
        envvar="INFERPLANE_USAGE_MEASURE",
        help="What the chart shows.",
        show_default="charged, or if nothing was tokens, else requests",
    ),
]
_Limit = Annotated[
    int,
    typer.Option(
        "--limit",
        envvar="INFERPLANE_USAGE_LIMIT",
        min=1,
        max=10_000,
        help="Most lines; those that cost most come first.",
    ),
]


@app.callback(invoke_without_command=True)
def usage(
    context: typer.Context,
    *,
    by: _By = None,
    since: _Since = None,
    until: _Until = None,
    project: _Project = "",
    key: _Key = "",
    endpoint: _Endpoint = "",
    model: _Model = "",
    shadows: _Shadows = False,
    chart: _Chart = False,
    measure: _Measure = None,
    limit: _Limit = 1000,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what was used, by whom, and what it cost; with a command, do that instead."""
    if context.invoked_subcommand is not None:
        return
    from services.cli.adapters import usage_chart, usage_tables
    from services.cli.adapters.edge import call
    from services.cli.adapters.usage import Question, query
    from services.cli.domain.usage_dimension import parse_dimensions

    asked = parse_dimensions(by or ("model",))
    if chart and len(asked.by) != 1:
        asked.refuse_chart()
    selection = _selection(since, until, project, key, endpoint)
    question = Question(
        selection=_of_model(selection, model, shadows=shadows),
        by=tuple(_dimension(word) for word in asked.by),
        tag=asked.tag,
        limit=limit,
    )
    report = call(address, lambda edge: query(edge, question))
    out = terminal(output)
    if out.as_json:
        out.resource(report, {})
        return
    if not report.total.requests:
        out.say("no requests in this time")
        return
    out.table(*usage_tables.table(report, asked.titles))
    if report.line_count > len(report.lines):
        out.say(f"{report.line_count - len(report.lines)} more lines; --limit shows more")
    if chart:
        drawn = measure.value if measure else usage_chart.best_measure(report.total)
        width = shutil.get_terminal_size().columns
        out.result(usage_chart.draw(report, question.by[0], drawn, width))


def _dimension(word: str) -> int:
    from services.cli.adapters.usage import Dimension

    return Dimension.Value(f"USAGE_DIMENSION_{word.upper()}")


def _selection(
    since: str | None, until: str | None, project: str, key: str, endpoint: str
) -> "Selection":
    from services.cli.adapters.usage import Selection
    from services.cli.domain.account_reference import short_key
    from services.cli.domain.spans import begin_of_month, parse_moment

    now = datetime.now(UTC)
    owner, _, key_id = short_key(key).rpartition("/")
    return Selection(
        since=parse_moment("--since", since, now) if since else begin_of_month(now),
        until=parse_moment("--until", until, now) if until else None,
        project=project.removeprefix("projects/") or owner,
        key=key_id,
        endpoint=endpoint.removeprefix("endpoints/"),
    )


def _of_model(selection: "Selection", model: str, *, shadows: bool) -> "Selection":
    """Narrowed to a model or version."""
    from dataclasses import replace

    from services.cli.domain.reference import parse_model_reference
    from services.rpc.names import VersionName

    if not model:
        return replace(selection, shadows=shadows)
    named, version = parse_model_reference(model)
    whole = str(VersionName(named, version)) if version else ""
    return replace(selection, model="" if whole else named, version=whole, shadows=shadows)


@app.command()
def request(
    request_id: Annotated[
        str, typer.Argument(metavar="REQUEST_ID", help="The answer's x-request-id.")
    ],
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show how one request was counted, and what it cost."""
    from services.cli.adapters import usage_tables
    from services.cli.adapters.edge import call
    from services.cli.adapters.usage import of_request

    found = call(address, lambda edge: of_request(edge, request_id))
    out = terminal(output)
    if out.as_json:
        out.resource(found, {})
        return
    for each in found.requests:
        out.resource(each, usage_tables.request_fields(each))


@app.command()
def export(
    *,
    file: Annotated[
        str,
        typer.Option(
            "--file", "-f", envvar="INFERPLANE_EXPORT_FILE", metavar="FILE|-", help="Where to."
        ),
    ],
    format_: Annotated[
        FileFormat,
        typer.Option(
            "--format",
            envvar="INFERPLANE_EXPORT_FORMAT",
            help="focus: FOCUS 1.2, as CSV, or as Parquet if FILE ends with .parquet.",
        ),
    ] = FileFormat.CSV,
    content: Annotated[
        Content,
        typer.Option(
            "--content",
            envvar="INFERPLANE_EXPORT_CONTENT",
            help="A line for each request, or sums by the hour; not for focus.",
        ),
    ] = Content.REQUESTS,
    since: _Since = None,
    until: _Until = None,
    project: _Project = "",
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Write usage to a file: CSV, Parquet, or FOCUS."""
    from services.cli.adapters import export_file, tables, usage
    from services.cli.adapters.edge import call

    is_focus = format_ is FileFormat.FOCUS
    is_parquet = format_ is FileFormat.PARQUET or (is_focus and file.endswith(".parquet"))
    what = usage.Content.Value(f"EXPORT_CONTENT_{'FOCUS' if is_focus else content.name}")
    form = usage.FileFormat.Value(f"EXPORT_FORMAT_{'PARQUET' if is_parquet else 'CSV'}")
    selection = _selection(since, until, project, "", "")

    async def work(edge: "Edge") -> int:
        return await export_file.write(usage.export(edge, what, form, selection), file)

    count = call(address, work)
    out = terminal(output)
    if file == "-":
        return
    if out.as_json:
        out.json({"file": file, "bytes": count})
    else:
        out.say(f"wrote {file} ({tables.size(count)})")
