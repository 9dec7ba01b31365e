"""What the SQL store promises on top: it lasts, migrates, and turns away what it can't use."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from services.registry.adapters.schema import migrate
from services.registry.adapters.sql_store import SqlStore
from services.registry.adapters.tables import metadata
from services.registry.domain.catalog import ALL_KINDS
from services.registry.ports.store import Store, Transaction
from services.rpc.errors import FailedPreconditionError, InferplaneError, InternalError
from tests.unit.registry import records

FIRST = 5_000


async def fill(store: Store) -> None:
    version, alias = records.version(), records.alias()
    populated: list[Any] = [
        records.model(),
        version,
        alias,
        records.placement(),
        records.endpoint("e", alias.name),
    ]

    async def work(transaction: Transaction) -> None:
        for record in populated:
            await transaction.put(record)

    await store.write(work)


@contextmanager
def connected(path: Path) -> Iterator[sa.Connection]:
    engine = sa.create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


async def test_a_store_lasts(tmp_path: Path) -> None:
    """Opened again, the store has its records and goes on with its revisions and its log."""
    path = tmp_path / "registry.db"
    async with SqlStore.open(path, first_revision=FIRST) as store:
        await fill(store)
        before = await store.snapshot(ALL_KINDS)
    async with SqlStore.open(path, first_revision=FIRST * 9) as store:
        assert store.revision == FIRST + 1
        assert await store.snapshot(ALL_KINDS) == before
        assert len((await store.changes(FIRST, ALL_KINDS)).changes) == 5


async def test_it_is_in_wal_mode(tmp_path: Path) -> None:
    """Readers don't wait for writers because the database is in WAL mode."""
    path = tmp_path / "registry.db"
    async with SqlStore.open(path, first_revision=FIRST):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_migrations_make_what_the_code_declares(tmp_path: Path) -> None:
    """Tables, columns, keys and indexes are the same by migration and by declaration."""
    migrated, declared = tmp_path / "migrated.db", tmp_path / "declared.db"
    async with SqlStore.open(migrated, first_revision=FIRST):
        pass
    with connected(declared) as connection:
        metadata.create_all(connection)
    shapes = []
    for path in (migrated, declared):
        with connected(path) as connection:
            look = sa.inspect(connection)
            shapes.append(
                {
                    table: (
                        [
                            (c["name"], str(c["type"]), c["nullable"])
                            for c in look.get_columns(table)
                        ],
                        look.get_pk_constraint(table)["constrained_columns"],
                        sorted(str(key) for key in look.get_foreign_keys(table)),
                        sorted(
                            f"{index['name']} {index['column_names']} {index['unique']}"
                            for index in look.get_indexes(table)
                        ),
                    )
                    for table in look.get_table_names()
                    if table != "alembic_version"
                }
            )
    assert shapes[0] == shapes[1]


async def test_migrations_go_down_and_up_on_a_populated_database(tmp_path: Path) -> None:
    """One step down keeps the records, up again they are served; all the way down leaves no table."""
    path = tmp_path / "registry.db"
    async with SqlStore.open(path, first_revision=FIRST) as store:
        await fill(store)
        before = await store.snapshot(ALL_KINDS)
    with connected(path) as connection:
        migrate(connection, "0001")
        assert not sa.inspect(connection).has_table("changes")
        assert connection.scalar(sa.text("SELECT count(*) FROM resources")) == 5
    async with SqlStore.open(path, first_revision=FIRST * 2) as store:
        # The log is gone, so revisions begin anew, above all that was ever given out.
        assert store.revision == FIRST * 2
        assert (await store.snapshot(ALL_KINDS)).changes == before.changes
    with connected(path) as connection:
        migrate(connection, "base")
        assert sa.inspect(connection).get_table_names() == ["alembic_version"]


async def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    """A schema that this release doesn't know is left alone, and the message says what to do."""
    path = tmp_path / "registry.db"
    async with SqlStore.open(path, first_revision=FIRST):
        pass
    with connected(path) as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(FailedPreconditionError, match=r"schema 9999.*run the newer release"):
        async with SqlStore.open(path, first_revision=FIRST):
            pass


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """A foreign file is not overwritten; the error is one of ours."""
    path = tmp_path / "registry.db"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(InternalError, match="not a database"):
        async with SqlStore.open(path, first_revision=FIRST):
            pass
    assert path.read_bytes().startswith(b"this is no database")


async def test_a_full_disk_is_said_so(tmp_path: Path) -> None:
    """When the database can't grow, the write is refused as RESOURCE_EXHAUSTED and changes nothing."""
    path = tmp_path / "registry.db"
    async with SqlStore.open(path, first_revision=FIRST) as store:

        async def work(transaction: Transaction) -> None:
            connection = transaction._connection  # type: ignore[attr-defined] # the SQL store's own
            await connection.exec_driver_sql("PRAGMA max_page_count=1")  # as large as it is
            for number in range(200):
                await transaction.put(records.model(f"m{number}", "x" * 4000))

        with pytest.raises(InferplaneError) as refused:
            await store.write(work)
        assert refused.value.reason == "DISK_FULL"
        assert (await store.snapshot(ALL_KINDS)).changes == []
