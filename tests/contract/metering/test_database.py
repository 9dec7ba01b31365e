"""Metering's database itself: its schema goes up and down, and a newer one is refused."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.metering.adapters import identity_tables
from services.metering.adapters.database import Database, migrate
from services.rpc.errors import FailedPreconditionError


async def columns(connection: AsyncConnection, table: str) -> list[tuple[str, bool]]:
    rows = await connection.run_sync(lambda c: sa.inspect(c).get_columns(table))
    return [(row["name"], row["nullable"]) for row in rows]


async def test_migrations_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    """Columns and whether they may be empty."""
    tables = (identity_tables.projects, identity_tables.signing_keys, identity_tables.api_keys)
    async with Database.open(tmp_path / "m.db") as database:
        for table in tables:
            found = await database.read(lambda c, name=table.name: columns(c, name))  # type: ignore[misc] # mypy infers no lambda with defaults
            assert found == [(column.name, column.nullable) for column in table.columns]


async def test_every_migration_goes_down_and_up_again(tmp_path: Path) -> None:
    """Down to nothing leaves no table but Alembic's own."""
    async with Database.open(tmp_path / "m.db") as database:
        await database.write(lambda c: c.run_sync(migrate, "base"))
        names = await database.read(lambda c: c.run_sync(lambda s: sa.inspect(s).get_table_names()))
        assert names == ["alembic_version"]
        await database.write(lambda c: c.run_sync(migrate))


async def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    """An older release must not write into what it doesn't know."""
    async with Database.open(tmp_path / "m.db") as database:
        await database.write(
            lambda c: c.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        )
    with pytest.raises(FailedPreconditionError) as caught:
        async with Database.open(tmp_path / "m.db"):
            pass
    assert caught.value.reason == "DATABASE_TOO_NEW"
