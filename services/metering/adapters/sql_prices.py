"""Prices of units and machines in the database: appended, never changed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from services.metering.adapters import sql_entries
from services.metering.adapters.database import Database
from services.metering.adapters.news import note
from services.metering.adapters.statements import run
from services.metering.domain.ledger import Entry, EntryKind, EntryNumber
from services.metering.domain.machine_price import MachinePrice, MachinePriceId
from services.metering.domain.price import Price, PriceId
from services.metering.domain.unit import Unit
from services.metering.ports.price_store import Committed

_TOPIC = "prices"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PRICE_FIELDS = "id, unit, amount, project, model, version, valid_from_ns, create_us"
_MACHINE_FIELDS = "id, pool, hourly_amount, machines, valid_from_ns, create_us"


def moment(microseconds: int) -> datetime:
    """The moment, from microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


def microseconds(at: datetime) -> int:
    """Microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def load_prices(connection: sa.Connection) -> list[Price]:
    """All prices in the order in which they were made."""
    return [
        Price(
            id=PriceId(row[0]),
            unit=Unit(row[1]),
            amount=row[2],
            project=row[3],
            model=row[4],
            version=row[5],
            valid_from_ns=row[6],
            create_time=moment(row[7]),
        )
        for row in run(connection, f"SELECT {_PRICE_FIELDS} FROM prices ORDER BY id")  # noqa: S608
    ]


def _note(connection: sa.Connection, price: Price | MachinePrice) -> None:
    """Into the ledger's chain, so that a price that is changed afterwards is found."""
    entry = Entry(
        number=EntryNumber(0),
        kind=EntryKind.PRICE,
        create_us=microseconds(price.create_time),
        reason=price.text,
    )
    sql_entries.append(connection, entry, ())
    note(connection, _TOPIC, "")


def load_machine_prices(connection: sa.Connection) -> list[MachinePrice]:
    """All prices of machines in the order in which they were made."""
    return [
        MachinePrice(
            id=MachinePriceId(row[0]),
            pool=row[1],
            hourly_amount=row[2],
            machines=row[3],
            valid_from_ns=row[4],
            create_time=moment(row[5]),
        )
        for row in run(
            connection,
            f"SELECT {_MACHINE_FIELDS} FROM machine_prices ORDER BY id",  # noqa: S608
        )
    ]


class SqlPrices:
    """A PriceStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def follow(self, taken: Callable[[Sequence[Price], Sequence[MachinePrice]], None]) -> None:
        def follower(connection: sa.Connection, _: Mapping[str, int]) -> None:
            taken(load_prices(connection), load_machine_prices(connection))

        self._database.follow(_TOPIC, follower)

    async def prices(self) -> list[Price]:
        return await self._database.read(lambda connection: connection.run_sync(load_prices))

    async def machine_prices(self) -> list[MachinePrice]:
        return await self._database.read(
            lambda connection: connection.run_sync(load_machine_prices)
        )

    async def add(self, price: Price, committed: Committed[Price]) -> Price:
        def work(connection: sa.Connection) -> Price:
            row = run(
                connection,
                "INSERT INTO prices (unit, amount, project, model, version, valid_from_ns, create_us)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
                (
                    int(price.unit),
                    price.amount,
                    price.project,
                    price.model,
                    price.version,
                    price.valid_from_ns,
                    microseconds(price.create_time),
                ),
            )
            stored = replace(price, id=PriceId(row.scalar_one()))
            _note(connection, stored)
            return stored

        return await self._database.write(lambda c: c.run_sync(work), committed)

    async def add_machine_price(
        self, price: MachinePrice, committed: Committed[MachinePrice]
    ) -> MachinePrice:
        def work(connection: sa.Connection) -> MachinePrice:
            row = run(
                connection,
                "INSERT INTO machine_prices (pool, hourly_amount, machines, valid_from_ns, create_us)"
                " VALUES (?, ?, ?, ?, ?) RETURNING id",
                (
                    price.pool,
                    price.hourly_amount,
                    price.machines,
                    price.valid_from_ns,
                    microseconds(price.create_time),
                ),
            )
            stored = replace(price, id=MachinePriceId(row.scalar_one()))
            _note(connection, stored)
            return stored

        return await self._database.write(lambda c: c.run_sync(work), committed)
