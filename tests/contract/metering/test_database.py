"""Metering's database itself: its schema goes up and down, and a newer one is refused."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.metering.adapters import identity_tables, ledger_tables
from services.metering.adapters.database import Database, metadata, migrate
from services.rpc.errors import FailedPreconditionError
from services.rpc.postgres import Target
from tests.metering_postgres import target_of


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Target:
    """A database that isn't made yet, on each engine."""
    if request.param == "sqlite":
        return tmp_path / "m.db"
    return target_of(request.getfixturevalue("postgres_url"))


async def columns(connection: AsyncConnection, table: str) -> list[tuple[str, bool]]:
    rows = await connection.run_sync(lambda c: sa.inspect(c).get_columns(table))
    return [(row["name"], row["nullable"]) for row in rows]


async def test_migrations_make_the_tables_that_the_code_uses(store: Path | Target) -> None:
    """Columns and whether they may be empty."""
    assert {identity_tables.projects, ledger_tables.entries} <= set(metadata.tables.values())
    async with Database.open(store) as database:
        for table in metadata.tables.values():
            found = await database.read(lambda c, name=table.name: columns(c, name))  # type: ignore[misc] # mypy infers no lambda with defaults
            wanted = [(column.name, column.nullable) for column in table.columns]
            assert [column for column in found if column in wanted] == wanted


async def test_every_migration_goes_down_and_up_again(store: Path | Target) -> None:
    """Down to nothing leaves no table but Alembic's own."""
    async with Database.open(store) as database:
        await database.write(lambda c: c.run_sync(migrate, "base"))
        names = await database.read(lambda c: c.run_sync(lambda s: sa.inspect(s).get_table_names()))
        assert names == ["alembic_version"]
    async with Database.open(store):
        pass


async def test_a_newer_database_is_refused(store: Path | Target) -> None:
    """An older release must not write into what it doesn't know."""
    async with Database.open(store) as database:
        await database.write(
            lambda c: c.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        )
    with pytest.raises(FailedPreconditionError) as caught:
        async with Database.open(store):
            pass
    assert caught.value.reason == "DATABASE_TOO_NEW"


async def test_the_registrys_database_is_refused(store: Path | Target) -> None:
    """Both services have the same variable for it, and migrations of the same names."""
    async with Database.open(store) as database:
        await database.write(lambda c: c.execute(sa.text("CREATE TABLE blob_uses (id INTEGER)")))
    with pytest.raises(FailedPreconditionError) as caught:
        async with Database.open(store):
            pass
    assert caught.value.reason == "DATABASE_OF_ANOTHER"
