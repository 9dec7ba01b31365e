"""Nothing in the ledger can be changed unseen: not a number, not a word, not a row."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from services.metering.adapters.sql_verify import verify
from services.metering.domain.ledger import (
    Entry,
    EntryKind,
    EntryNumber,
    correction_postings,
    credit_postings,
)
from services.metering.domain.unit import Unit
from services.metering.domain.usage import Kind, Outcome, Telemetry
from services.metering.drivers.price_list import MachinePriceInput
from tests.contract.metering.ledger_world import NOW, LedgerWorld, new_ledger, opened
from tests.metering_usage import PROJECT, START_NS, Told, batch_of

# Columns that say nothing of what was used or charged.
FREE = {
    ("usage_sources", "worker"),
    ("usage_sources", "pool"),
    ("usage_sources", "update_us"),
    ("usage_retention", "create_us"),
    ("usage_retention", "id"),
    ("usage_sources", "id"),  # entries say which source
    ("ledger_postings", "id"),  # their order is covered, their numbers are nobody's
}
TABLES = (
    "usage_sources",
    "usage_subjects",
    "usage_rows",
    "usage_superseded",
    "usage_telemetry",
    "ledger_accounts",
    "ledger_entries",
    "ledger_postings",
    "ledger_balances",
    "prices",
    "machine_prices",
    "usage_rollups",
    "usage_family_rollups",
    "spending",
)
KEYED = {"usage_rollups", "usage_family_rollups", "spending"}  # without a rowid
NUMBERS = {"input_tokens": 40, "output_tokens": 7, "rows": 2, "compute_ns": 5_000_000}


async def fill(world: LedgerWorld) -> None:
    """Something of everything there can be."""
    await world.price(Unit.OUTPUT_TOKEN, "0.002")
    await world.price(Unit.REQUEST, "0.01", project="acme", model="smol", version="1")
    await world.prices.create_machine_price(
        MachinePriceInput(pool="default", hourly_amount="2", machines=3, valid_from=NOW)
    )
    told = [
        Told(request=1, numbers=NUMBERS),
        Told(request=2, outcome=Outcome.FAILED, numbers=NUMBERS),
        Told(request=3, subject=replace(PROJECT, kind=Kind.SHADOW), numbers=NUMBERS),
        Told(request=4, subject=replace(PROJECT, project="other"), start_ns=START_NS + 10**15),
    ]
    texts = [Telemetry(0, b"f" * 16, 100, 20, {"rude": 0.25})]
    await world.record(batch_of(told, telemetry=texts))
    retry = Told(request=2, attempt=2, start_ns=START_NS + 5, numbers=NUMBERS)
    await world.record(batch_of([retry], source="outbox-2"))
    entry = Entry(number=EntryNumber(0), kind=EntryKind.CREDIT, create_us=1, reason="welcome")
    await world.ledger.append(replace(entry, request_key="once"), credit_postings("acme", 5))
    mistake = replace(entry, kind=EntryKind.CORRECTION, corrects=4)
    await world.ledger.append(mistake, correction_postings("acme", -3))


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Connection]:
    """A filled ledger whose triggers are gone: what a thief with the file could do."""
    path = new_ledger(tmp_path_factory.mktemp("ledger"))

    async def make(path: Path) -> None:
        async with opened(path) as world:
            await fill(world)
            assert await world.problems() == []

    asyncio.run(make(path))
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for name in names.scalars().all():
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        connection.commit()
        yield connection
    engine.dispose()


def columns(connection: sa.Connection, table: str) -> list[str]:
    rows = connection.exec_driver_sql(f"PRAGMA table_info({table})")
    return [row[1] for row in rows if (table, row[1]) not in FREE]


def changed(value: object) -> object:
    """The same with one bit or character changed."""
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1]) if value else b"x"
    if isinstance(value, int):
        return value ^ 1
    assert value is None or isinstance(value, str)
    return f"{(value or '')[:-1]}~"


@pytest.mark.parametrize("table", TABLES)
def test_a_changed_value_is_found(connection: sa.Connection, table: str) -> None:
    """Whichever value of whichever row is changed, a verification says that something is wrong."""
    places = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
    assert places
    unseen = []
    for column in columns(connection, table):
        for place in {0, places // 2, places - 1}:
            key = "rowid" if table not in KEYED else None
            where, values = chosen(connection, table, key, place)
            value = connection.exec_driver_sql(
                f"SELECT {column} FROM {table} WHERE {where}", values
            )
            new = changed(value.scalar_one())
            try:
                connection.exec_driver_sql(
                    f"UPDATE {table} SET {column} = ? WHERE {where}", (new, *values)
                )
            except sa.exc.IntegrityError:
                connection.rollback()  # not even SQLite takes it
                continue
            if verify(connection, 0, b"").ok:
                unseen.append(f"{column} of row {place}: {new!r}")
            connection.rollback()
    assert unseen == []


def chosen(
    connection: sa.Connection, table: str, key: str | None, place: int
) -> tuple[str, tuple[object, ...]]:
    """Which row is at this place."""
    names = (
        [key]
        if key
        else (["project", "month"] if table == "spending" else ["grain", "start", "subject"])
    )
    row = connection.exec_driver_sql(
        f"SELECT {', '.join(names)} FROM {table} LIMIT 1 OFFSET {place}"
    ).one()
    return " AND ".join(f"{name} = ?" for name in names), tuple(row)


@pytest.mark.parametrize("table", TABLES)
def test_a_row_that_is_gone_is_found(connection: sa.Connection, table: str) -> None:
    """Whichever row is deleted, a verification says that something is wrong."""
    places = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
    unseen = []
    for place in range(places):
        key = "rowid" if table not in KEYED else None
        where, values = chosen(connection, table, key, place)
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE {where}", values)
        if verify(connection, 0, b"").ok:
            unseen.append(place)
        connection.rollback()
    assert unseen == []


def test_a_rewritten_history_is_found(connection: sa.Connection) -> None:
    """Who noted an entry's hash finds that another history has taken its place."""
    found = verify(connection, 0, b"")
    assert verify(connection, found.head_number, found.head_hash).ok
    other = bytes(32)
    (problem,) = verify(connection, found.head_number, other).problems
    assert problem.reason == "HISTORY_REWRITTEN"
    connection.rollback()
