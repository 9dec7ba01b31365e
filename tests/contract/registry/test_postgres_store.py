"""What the store on Postgres promises on top: one process writes, others follow, and what is done is done once."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from services.registry.adapters.schema import migrate
from services.registry.adapters.sql_store import SqlStore
from services.registry.adapters.tables import metadata
from services.registry.domain.catalog import ALL_KINDS
from services.registry.ports.store import Transaction
from services.rpc import postgres
from services.rpc.errors import FailedPreconditionError, InferplaneError, UnavailableError
from tests.contract.registry.opened_store import get_model, put
from tests.postgres import Databases, PostgresServer
from tests.postgres_proxy import Cut, between
from tests.unit.registry import records

FIRST = 5_000
SECONDS = 60


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[SqlStore]:
    """A store that took nothing over."""
    target = postgres.target(url, None, "registry")
    assert target is not None
    async with SqlStore.on_postgres(target, first_revision=FIRST) as store:
        yield store


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[SqlStore]:
    async with reading(url) as store:
        await store.take_over()
        yield store


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


async def test_who_took_over_last_writes(postgres_url: str) -> None:
    """One that another took over from neither writes nor reads any more, and hears that it is so."""
    async with serving(postgres_url) as first, serving(postgres_url) as second:
        assert await second.leads()
        with pytest.raises(UnavailableError) as refused:
            await put(first, records.model())
        assert refused.value.reason == "SUPERSEDED"
        assert first.superseded.is_set()
        with pytest.raises(UnavailableError):
            await get_model(first)
        assert not await first.leads()
        await put(second, records.model())
        assert second.revision == FIRST + 1
        assert not second.superseded.is_set()


async def test_a_turn_that_changes_during_a_write_ends_it(postgres_url: str) -> None:
    """Taking over waits for the write that is under way; the next one by its writer is refused."""
    async with serving(postgres_url) as first, reading(postgres_url) as second:
        begun, go = asyncio.Event(), asyncio.Event()

        async def work(transaction: Transaction) -> None:
            await transaction.put(records.model())
            begun.set()
            await go.wait()

        writing = asyncio.create_task(first.write(work))
        await begun.wait()
        taking = asyncio.create_task(second.take_over())
        go.set()
        await writing
        await taking
        assert second.revision == FIRST + 1
        with pytest.raises(UnavailableError):
            await put(first, records.model("n"))
        assert await get_model(second, "n") is None


async def test_a_reader_of_another_process_misses_nothing(postgres_url: str) -> None:
    """One that follows sees every revision after the writer, none before it is committed, and may not write."""
    async with reading(postgres_url) as reader:
        following = asyncio.create_task(reader.follow())
        async with serving(postgres_url) as writer:
            await reader.wait_beyond(FIRST - 1)
            seen: list[str] = []
            revision = FIRST
            writing = asyncio.create_task(write_many(writer, 30))
            async with asyncio.timeout(SECONDS):
                while len(seen) < 30:
                    await reader.wait_beyond(revision)
                    news = await reader.changes(revision, ALL_KINDS)
                    assert news.revision > revision
                    assert len(news.changes) == news.revision - revision
                    revision = news.revision
                    seen += [change.name for change in news.changes]
            await writing
            assert seen == [f"models/m{number}" for number in range(30)]
            with pytest.raises(UnavailableError) as refused:
                await put(reader, records.model())
            assert refused.value.reason == "STANDBY"
        following.cancel()
        await asyncio.wait([following])


async def write_many(store: SqlStore, count: int) -> None:
    for number in range(count):
        await put(store, records.model(f"m{number}"))


@pytest.mark.parametrize("cut", list(Cut), ids=lambda cut: cut.value)
async def test_a_commit_that_nobody_heard_of_counts_once(postgres_url: str, cut: Cut) -> None:
    """A connection lost in a commit: the write succeeds, has one revision, and is there once."""
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        async with (
            between(postgres_url, Path(name)) as (proxy, url),
            serving(url) as store,
        ):
            await put(store, records.model("before"))
            proxy.cut = cut
            await put(store, records.model("cut"))
            assert proxy.cuts == 1
            await put(store, records.model("after"))
            assert store.revision == FIRST + 3
            names = [change.name for change in (await store.changes(FIRST, ALL_KINDS)).changes]
            assert names == ["models/before", "models/cut", "models/after"]


async def test_it_lasts_and_goes_on(postgres_url: str) -> None:
    """Taken over again, the store goes on with its revisions and its log."""
    async with serving(postgres_url) as store:
        await write_many(store, 3)
        before = await store.snapshot(ALL_KINDS)
    async with serving(postgres_url) as store:
        assert store.revision == FIRST + 3
        assert await store.snapshot(ALL_KINDS) == before
        assert len((await store.changes(FIRST, ALL_KINDS)).changes) == 3


async def test_the_order_is_that_of_code_points(postgres_url: str) -> None:
    """Columns that things are ordered by don't follow the language that the database was made for."""
    async with serving(postgres_url):
        pass
    with connected(postgres_url) as connection:
        wanted = (
            "SELECT table_name || '.' || column_name, collation_name FROM information_schema.columns"
            " WHERE column_name IN ('name', 'parent', 'sort_key', 'source', 'target', 'version')"
            " AND table_schema = 'public'"
        )
        found = {row[0]: row[1] for row in connection.execute(sa.text(wanted))}
    assert found["resources.name"] == found["resources.sort_key"] == "C"
    assert set(found.values()) == {"C"}


async def test_migrations_make_what_the_code_declares(postgres_databases: Databases) -> None:
    """Tables, columns, keys and indexes are the same by migration and by declaration."""
    shapes = []
    for make in (migrate, metadata.create_all):
        with postgres_databases.fresh() as url:
            with connected(url) as connection:
                make(connection)
            with connected(url) as connection:
                look = sa.inspect(connection)
                shapes.append(
                    {
                        table: (
                            [
                                (c["name"], repr(c["type"]), c["nullable"], c["default"])
                                for c in look.get_columns(table)
                            ],
                            look.get_pk_constraint(table)["constrained_columns"],
                            sorted(str(key) for key in look.get_foreign_keys(table)),
                            sorted(str(index) for index in look.get_indexes(table)),
                        )
                        for table in look.get_table_names()
                        if table != "alembic_version"
                    }
                )
    assert shapes[0] == shapes[1]


async def test_migrations_go_down_and_up_on_a_populated_database(postgres_url: str) -> None:
    """One step down keeps the records, up again they are served; all the way down leaves no table."""
    async with serving(postgres_url) as store:
        await write_many(store, 3)
        before = await store.snapshot(ALL_KINDS)
    with connected(postgres_url) as connection:
        migrate(connection, "0002")
        assert connection.scalar(sa.text("SELECT count(*) FROM resources")) == 3
    async with serving(postgres_url) as store:
        assert await store.snapshot(ALL_KINDS) == before
    with connected(postgres_url) as connection:
        migrate(connection, "base")
        assert sa.inspect(connection).get_table_names() == ["alembic_version"]


async def test_a_newer_database_is_refused(postgres_url: str) -> None:
    """A schema that this release doesn't know is left alone, and the message says what to do."""
    async with serving(postgres_url):
        pass
    with connected(postgres_url) as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(FailedPreconditionError, match=r"schema 9999.*run the newer release"):
        async with serving(postgres_url):
            pass


@contextmanager
def small_disk(server: PostgresServer) -> Iterator[str]:
    """A database on a disk of a few MiB; skipped where none can be mounted."""
    with tempfile.TemporaryDirectory(prefix="ip-disk-") as name:
        folder = Path(name)
        try:
            mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", name]
            subprocess.run(mount, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("a small disk can be mounted by root only")
        try:
            server.give(folder)
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(f"CREATE TABLESPACE small LOCATION '{name}'")
            with Databases(server.url).fresh("TABLESPACE small") as url:
                yield url
        finally:
            server.stop()
            subprocess.run(["umount", name], check=True)


async def test_a_full_disk_is_said_so(own_postgres: PostgresServer) -> None:
    """When the database can't grow, the write is refused as RESOURCE_EXHAUSTED and changes nothing; reads go on."""
    with small_disk(own_postgres) as url:
        async with serving(url) as store:

            async def work(transaction: Transaction) -> None:
                for number in range(100):  # what doesn't shrink when it is compressed
                    await transaction.put(records.model(f"m{number}", os.urandom(100_000).hex()))

            with pytest.raises(InferplaneError) as refused:
                await store.write(work)
            assert refused.value.reason == "DISK_FULL"
            assert (await store.snapshot(ALL_KINDS)).changes == []
            assert store.revision == FIRST
