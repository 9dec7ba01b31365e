"""Empty databases of metering on Postgres: the schema is made once a session, each test gets a copy."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
import sqlalchemy as sa

from services.metering.adapters.database import Database
from services.rpc.postgres import Target, target
from tests.postgres import Databases


def target_of(url: str) -> Target:
    """What metering opens."""
    found = target(url, None, "metering")
    assert found is not None
    return found


@dataclass
class MeteringDatabases:
    """Copies of one that is up to date."""

    admin: str
    template: str
    made: int = 0

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """A copy's URL; it is gone afterwards with all connections to it."""
        self.made += 1
        name = f"{self.template}_{self.made}"
        with psycopg.connect(self.admin, autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {name} TEMPLATE {self.template} STRATEGY file_copy"
            )
        try:
            yield sa.make_url(self.admin).set(database=name).render_as_string(hide_password=False)
        finally:
            with psycopg.connect(self.admin, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def _migrate(url: str) -> None:
    async with Database.open(target_of(url)):
        pass


@pytest.fixture(scope="session")
def metering_databases(postgres_databases: Databases) -> Iterator[MeteringDatabases]:
    """Made with the first test that wants one."""
    with postgres_databases.fresh() as url:
        with ThreadPoolExecutor(1) as thread:  # also where a loop runs already
            thread.submit(asyncio.run, _migrate(url)).result()
        template = sa.make_url(url).database
        assert template is not None
        yield MeteringDatabases(postgres_databases.admin, template)


@pytest.fixture
def metering_url(metering_databases: MeteringDatabases) -> Iterator[str]:
    """An empty database of metering, as INFERPLANE_STORE_URL takes it."""
    with metering_databases.fresh() as url:
        yield url
