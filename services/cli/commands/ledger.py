"""Commands on the ledger: verify, entries, balance, correct; and credits add."""

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
    from services.cli.adapters.money import Booking

app = typer.Typer(no_args_is_help=True, help="The ledger: what is owed, and the proof of it.")
credits_ = typer.Typer(no_args_is_help=True, help="Credits: what lowers what a project owes.")

_Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Project id.")]
_Amount = Annotated[
    str, typer.Argument(metavar="AMOUNT", help="A decimal in the ledger's currency.")
]
_Reason = Annotated[
    str,
    typer.Option("--reason", envvar="INFERPLANE_BOOKING_REASON", metavar="TEXT", help="Why."),
]
_RequestId = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        envvar="INFERPLANE_BOOKING_REQUEST_ID",
        metavar="ID",
        help="Repeating the command with the same one makes no second entry.",
        show_default="another each time",
    ),
]


@app.command()
def verify(
    *,
    known: Annotated[
        str | None,
        typer.Option(
            "--known",
            envvar="INFERPLANE_LEDGER_KNOWN",
            metavar="ENTRY:HASH",
            help="`newest` of an earlier run: nothing up to it may have been rewritten.",
            show_default="not asked",
        ),
    ] = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> int:
    """Have everything counted again from the requests; exit code 1 if anything does not add up."""
    from services.cli.adapters import money, money_tables
    from services.cli.adapters.edge import call
    from services.cli.domain.exit_code import ExitCode, UsageError

    number, colon, digest = (known or ":").partition(":")
    if not colon or bool(number) is not bool(digest):
        raise UsageError(f"--known {known!r}: allowed: ENTRY:HASH, as ledger verify tells `newest`")
    entry = number and f"ledgerEntries/{number.removeprefix('ledgerEntries/')}"
    found = call(address, lambda edge: money.verify(edge, entry, digest))
    out = terminal(output)
    out.resource(found, money_tables.proof_fields(found))
    for problem in found.problems:
        out.result(f"{problem.reason} {problem.subject}: {problem.description}")
    return ExitCode.OK if found.ok else ExitCode.FAILED


@app.command()
def entries(
    *,
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            envvar="INFERPLANE_LEDGER_PROJECT",
            metavar="PROJECT",
            help="Only those that touch it.",
            show_default="all",
        ),
    ] = None,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", envvar="INFERPLANE_LEDGER_LINES", min=1, help="How many of the newest."
        ),
    ] = 20,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the newest entries with their postings."""
    from services.cli.adapters import money, money_tables
    from services.cli.adapters.edge import call
    from services.cli.adapters.terminal import as_dict
    from services.cli.domain.account_reference import parse_project

    name = str(parse_project(project)) if project else ""
    found = call(address, lambda edge: money.newest_entries(edge, name, lines))
    out = terminal(output)
    if out.as_json:
        out.json([as_dict(entry) for entry in found])
    elif not found:
        out.say("no entries yet")
    else:
        rows = [row for entry in found for row in money_tables.entry_rows(entry)]
        out.table(money_tables.ENTRY_HEADERS, rows)


@app.command()
def balance(
    project: _Project,
    *,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what a project owes."""
    from services.cli.adapters import money, money_tables
    from services.cli.adapters.edge import call
    from services.cli.domain.account_reference import parse_project

    name = parse_project(project)
    found = call(address, lambda edge: money.balance(edge, name))
    terminal(output).resource(found, money_tables.balance_fields(found))


@app.command()
def correct(
    project: _Project,
    amount: _Amount,
    *,
    reason: _Reason,
    corrects: Annotated[
        int | None,
        typer.Option(
            "--corrects",
            envvar="INFERPLANE_BOOKING_CORRECTS",
            metavar="ENTRY",
            help="Number of the entry that it puts right.",
            show_default="none in particular",
        ),
    ] = None,
    request_id: _RequestId = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Raise or (after `--`, with a minus) lower what a project owes for its usage, by an entry of its own."""
    from services.cli.adapters import money, money_tables
    from services.cli.adapters.edge import call

    wanted = _booking(project, amount, reason, request_id, corrects)
    made = call(address, lambda edge: money.add_correction(edge, wanted))
    terminal(output).resource(made, money_tables.entry_fields(made))


@credits_.command("add")
def add(
    project: _Project,
    amount: _Amount,
    *,
    reason: _Reason,
    request_id: _RequestId = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Lower what a project owes."""
    from services.cli.adapters import money, money_tables
    from services.cli.adapters.edge import call

    wanted = _booking(project, amount, reason, request_id)
    made = call(address, lambda edge: money.add_credit(edge, wanted))
    terminal(output).resource(made, money_tables.entry_fields(made))


def _booking(
    project: str, amount: str, reason: str, request_id: str | None, corrects: int | None = None
) -> "Booking":
    from uuid import uuid4

    from services.cli.adapters.money import Booking
    from services.cli.domain.account_reference import parse_project
    from services.cli.domain.amounts import parse_amount, plain

    return Booking(
        project=parse_project(project),
        amount=plain(parse_amount("AMOUNT", amount)),
        reason=reason,
        request_id=request_id or str(uuid4()),
        corrects="" if corrects is None else f"ledgerEntries/{corrects}",
    )
