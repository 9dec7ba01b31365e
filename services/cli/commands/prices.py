"""Commands on prices: what is charged (prices), and what machines cost (costs machine)."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    AddressOption,
    Format,
    OutputOption,
    terminal,
)

app = typer.Typer(no_args_is_help=True, help="Prices: what one unit of usage is charged.")
costs = typer.Typer(no_args_is_help=True, help="Costs: what the machines cost that compute.")
machine = typer.Typer(no_args_is_help=True, help="What a pool's machines cost an hour.")
costs.add_typer(machine, name="machine")


class Unit(StrEnum):
    """What is counted."""

    REQUEST = "request"
    INPUT_TOKEN = "input-token"  # noqa: S105 - a word of the price book
    CACHED_TOKEN = "cached-token"  # noqa: S105 - as above
    OUTPUT_TOKEN = "output-token"  # noqa: S105 - as above
    COMPUTE_SECOND = "compute-second"
    ROW = "row"


_From = Annotated[
    str | None,
    typer.Option(
        "--from",
        envvar="INFERPLANE_PRICE_FROM",
        metavar="MOMENT",
        help="Since when it holds: a date or time (UTC), such as 2026-12-01.",
        show_default="now",
    ),
]
_Project = Annotated[
    str,
    typer.Option(
        "--project", envvar="INFERPLANE_PRICE_PROJECT", metavar="PROJECT", help="Only for it."
    ),
]
_Model = Annotated[
    str,
    typer.Option(
        "--model", envvar="INFERPLANE_PRICE_MODEL", metavar="MODEL[@VERSION]", help="Only for it."
    ),
]
_Per = Annotated[
    int,
    typer.Option(
        "--per",
        envvar="INFERPLANE_PRICE_PER",
        min=1,
        help="AMOUNT is for so many, such as 1000000 tokens.",
    ),
]
_Hourly = Annotated[
    str,
    typer.Option(
        "--hourly",
        envvar="INFERPLANE_MACHINE_HOURLY",
        metavar="AMOUNT",
        help="What one machine costs an hour, in the ledger's currency.",
    ),
]
_Machines = Annotated[
    int,
    typer.Option("--machines", envvar="INFERPLANE_MACHINES", min=0, help="How many there are."),
]


@app.command("set")
def set_(
    unit: Annotated[Unit, typer.Argument(help="What is charged.")],
    amount: Annotated[
        str, typer.Argument(metavar="AMOUNT", help="A decimal in the ledger's currency.")
    ],
    *,
    per: _Per = 1,
    model: _Model = "",
    project: _Project = "",
    from_: _From = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Set a price from a moment on; those before it stay what they were.

    Of several that fit, the most exact counts: project before model before version before none.
    """
    from inferplane.metering.v1 import price_pb2

    from services.cli.adapters import money, money_tables
    from services.cli.adapters.edge import call
    from services.cli.domain.amounts import price_of_one
    from services.cli.domain.reference import parse_model_reference
    from services.cli.domain.spans import parse_moment

    named, version = parse_model_reference(model) if model else ("", None)
    wanted = price_pb2.Price(
        unit=price_pb2.PriceUnit.Value(f"PRICE_UNIT_{unit.name}"),
        amount=price_of_one("AMOUNT", amount, per),
        project=project,
        model=named,
        version=version or "",
        valid_from=money.stamp(parse_moment("--from", from_, datetime.now(UTC)) if from_ else None),
    )
    made = call(address, lambda edge: money.set_price(edge, wanted))
    terminal(output).resource(made, money_tables.price_fields(made))


@app.command("list")
def list_(
    *,
    model: _Model = "",
    project: _Project = "",
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """List all prices, newest first, also those that have been replaced."""
    from services.cli.adapters import money, money_tables
    from services.cli.adapters.edge import call

    found = call(address, lambda edge: money.list_prices(edge, project, model))
    none = "no prices, so nothing is charged; inferplane prices set makes one"
    terminal(output).resources(found.prices, money_tables.prices(found.currency), none)


@machine.command("set")
def set_machine(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Pool of workers.")],
    *,
    hourly: _Hourly,
    machines: _Machines = 1,
    from_: _From = None,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say what the machines of a pool cost, busy or not; reports then tell what tokens really cost."""
    from inferplane.metering.v1 import machine_price_pb2

    from services.cli.adapters import money, money_tables
    from services.cli.adapters.edge import call
    from services.cli.domain.amounts import price_of_one
    from services.cli.domain.spans import parse_moment

    wanted = machine_price_pb2.MachinePrice(
        pool=pool,
        hourly_amount=price_of_one("--hourly", hourly, 1),
        machines=machines,
        valid_from=money.stamp(parse_moment("--from", from_, datetime.now(UTC)) if from_ else None),
    )
    made = call(address, lambda edge: money.set_machine_price(edge, wanted))
    terminal(output).resource(made, money_tables.machine_fields(made))


@machine.command("list")
def list_machines(
    *, address: AddressOption = DEFAULT_ADDRESS, output: OutputOption = Format.TABLE
) -> None:
    """List what machines cost, newest first."""
    from services.cli.adapters import money, money_tables
    from services.cli.adapters.edge import call

    found = call(address, money.list_machine_prices)
    none = "nobody has said what machines cost; inferplane costs machine set does"
    terminal(output).resources(found, money_tables.MACHINES, none)
