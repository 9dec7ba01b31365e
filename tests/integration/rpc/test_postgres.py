"""Transactions, listening and locks on a real Postgres: what is done is done once, whatever connection is lost."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.rpc import postgres
from services.rpc.errors import InternalError, UnavailableError
from services.rpc.postgres import Target
from services.rpc.postgres_listener import Listener
from services.rpc.postgres_lock import SessionLock
from services.rpc.settings import SettingsError
from tests.postgres import PostgresServer
from tests.postgres_proxy import Cut, between

KEY = postgres.lock_key("test", "write")
SECONDS = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short: socket paths have a limit of 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        yield Path(name)


def target(url: str) -> Target:
    found = postgres.target(url, None, "test")
    assert found is not None
    return found


@asynccontextmanager
async def engine_on(url: str) -> AsyncIterator[AsyncEngine]:
    engine = postgres.open_engine(target(url))
    try:
        yield engine
    finally:
        await engine.dispose()


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    async with engine_on(postgres_url) as opened:
        await postgres.write(opened, make, KEY)
        yield opened


async def make(connection: AsyncConnection) -> None:
    await connection.execute(sa.text("CREATE TABLE counts (n int)"))
    await connection.execute(sa.text("INSERT INTO counts VALUES (0)"))


async def count(connection: AsyncConnection) -> int:
    return int(await connection.scalar(sa.text("SELECT n FROM counts")) or 0)


async def add(connection: AsyncConnection) -> int:
    """Reads, then writes what it read plus one: wrong unless nobody writes between."""
    n = await count(connection) + 1
    await connection.execute(sa.text("UPDATE counts SET n = :n"), {"n": n})
    return n


async def test_writers_take_turns(engine: AsyncEngine, postgres_url: str) -> None:
    """Of many writers of two processes each sees what the one before committed; a reader's state doesn't move."""
    async with engine_on(postgres_url) as other, postgres.read_transaction(engine) as reading:
        assert await count(reading) == 0
        numbers = await asyncio.gather(
            *(postgres.write(each, add, KEY) for _ in range(20) for each in (engine, other))
        )
        assert sorted(numbers) == list(range(1, 41))
        assert await count(reading) == 0
        assert await postgres.read(other, count) == 40


async def test_a_reader_may_not_write(engine: AsyncEngine) -> None:
    """A transaction that reads is one that can do nothing else."""
    with pytest.raises(UnavailableError), postgres.translated("test"):
        await postgres.read(engine, add)


async def test_a_connection_lost_before_the_commit_is_harmless(
    engine: AsyncEngine, postgres_url: str
) -> None:
    """What was done on it is undone, and the work is done again from its beginning."""
    attempts = 0

    async def work(connection: AsyncConnection) -> int:
        nonlocal attempts
        attempts += 1
        n = await add(connection)
        if attempts == 1:
            own = await connection.scalar(sa.text("SELECT pg_backend_pid()"))
            async with engine_on(postgres_url) as other, other.connect() as killer:
                await killer.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": own})
        return n

    assert await postgres.write(engine, work, KEY) == 1
    assert attempts == 2
    assert await postgres.read(engine, count) == 1


@pytest.mark.parametrize("cut", list(Cut), ids=lambda cut: cut.value)
async def test_a_connection_lost_in_the_commit_counts_once(
    engine: AsyncEngine, postgres_url: str, folder: Path, cut: Cut
) -> None:
    """Whether the commit was done is found out: done, it isn't repeated; not done, it is done again."""
    async with between(postgres_url, folder) as (proxy, url), engine_on(url) as cut_off:
        assert await postgres.write(cut_off, add, KEY) == 1
        proxy.cut = cut
        assert await postgres.write(cut_off, add, KEY) == 2
        assert proxy.cuts == 1
    assert await postgres.read(engine, count) == 2


async def test_an_outcome_nobody_knows_is_said_so(
    engine: AsyncEngine, postgres_url: str, folder: Path
) -> None:
    """Where it can't be found out the caller hears that, and nothing is repeated."""

    async def unknown(_connection: AsyncConnection) -> bool | None:
        return None

    async with between(postgres_url, folder) as (proxy, url), engine_on(url) as cut_off:
        proxy.cut = Cut.AFTER
        with pytest.raises(UnavailableError) as said:
            await postgres.write(cut_off, add, KEY, unknown)
        assert said.value.reason == "COMMIT_UNKNOWN"
    assert await postgres.read(engine, count) == 1


async def test_an_outcome_that_cannot_be_asked_yet_is_asked_again(
    engine: AsyncEngine, postgres_url: str, folder: Path
) -> None:
    """That there is no connection to ask on says nothing of the commit: the caller hears how it is."""
    asked = 0

    async def busy(_connection: AsyncConnection) -> bool | None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise PoolTimeoutError
        return True

    async with between(postgres_url, folder) as (proxy, url), engine_on(url) as cut_off:
        proxy.cut = Cut.AFTER
        assert await postgres.write(cut_off, add, KEY, busy) == 1
    assert asked == 2
    assert await postgres.read(engine, count) == 1


async def test_a_restart_is_waited_for(own_postgres: PostgresServer) -> None:
    """Writes go on when the server comes back after a crash; those that ended are there."""
    async with engine_on(own_postgres.url) as engine:
        await postgres.write(engine, make, KEY)
        await postgres.write(engine, add, KEY)
        own_postgres.kill()
        with pytest.raises(UnavailableError) as said, postgres.translated("test"):
            await postgres.write(engine, add, KEY)
        assert said.value.reason == "DATABASE_UNAVAILABLE"
        assert said.value.retry_after is not None
        writing = asyncio.create_task(postgres.write(engine, add, KEY))
        await asyncio.to_thread(own_postgres.start)
        assert await writing == 2


async def test_one_migrates_whoever_begins(postgres_url: str) -> None:
    """Processes that begin at once bring the schema up to date once."""
    made = 0

    def migrate(connection: sa.Connection) -> None:
        nonlocal made
        if connection.scalar(sa.text("SELECT to_regclass('counts')")) is None:
            made += 1
            connection.execute(sa.text("CREATE TABLE counts (n int)"))

    async def start() -> None:
        async with engine_on(postgres_url) as engine:
            await postgres.migrated(engine, KEY, migrate)

    await asyncio.gather(*(start() for _ in range(5)))
    assert made == 1


async def test_a_slow_statement_is_ended(engine: AsyncEngine) -> None:
    """A statement that takes too long ends with words that say so; a wrong one is our fault."""

    async def sleep(connection: AsyncConnection) -> None:
        await connection.execute(sa.text("SET LOCAL statement_timeout = '50ms'"))
        await connection.execute(sa.text("SELECT pg_sleep(60)"))

    async def wrong(connection: AsyncConnection) -> None:
        await connection.execute(sa.text("SELECT 1 / 0"))

    with pytest.raises(UnavailableError) as said, postgres.translated("test"):
        await postgres.write(engine, sleep, KEY)
    assert said.value.reason == "DATABASE_SLOW"
    with pytest.raises(InternalError), postgres.translated("test"):
        await postgres.write(engine, wrong, KEY)


async def test_the_password_comes_from_a_file(postgres_url: str, folder: Path) -> None:
    """It is read for each connection; a URL that holds one is refused, one that names no database too."""
    file = folder / "password"
    file.write_text("first\n")
    found = postgres.target(postgres_url, file, "test")
    assert found is not None
    assert found.parameters()["password"] == "first"
    file.write_text("second")
    assert found.parameters()["password"] == "second"
    with pytest.raises(SettingsError, match="INFERPLANE_STORE_PASSWORD_FILE"):
        postgres.target("postgresql://user:secret@host/db", None, "test")
    with pytest.raises(SettingsError, match="names no database"):
        postgres.target("postgresql://user@host", None, "test")
    assert postgres.target("sqlite:///x", None, "test") is None


class Ear:
    """Remembers what a listener heard."""

    def __init__(self) -> None:
        self.heard: list[str | None] = []
        self._news = asyncio.Event()

    async def hear(self, told: str | None) -> None:
        self.heard.append(told)
        self._news.set()

    async def until(self, told: str | None) -> None:
        """Wait for this among what is heard from now on, and what was heard already."""
        async with asyncio.timeout(SECONDS):
            while told not in self.heard:
                self._news.clear()
                await self._news.wait()


async def notify(engine: AsyncEngine, text: str) -> None:
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(sa.select(sa.func.pg_notify("news", text)))

    await postgres.write(engine, work, KEY)


async def test_a_listener_hears_and_looks_again(own_postgres: PostgresServer) -> None:
    """It looks at its beginning, hears what is told, and looks again after the server was gone."""
    ear = Ear()
    listening = asyncio.create_task(
        Listener(target(own_postgres.url), "news", ear.hear, every=3600).run()
    )
    async with engine_on(own_postgres.url) as engine:
        await ear.until(None)
        await notify(engine, "first")
        await ear.until("first")
        ear.heard.clear()
        own_postgres.stop()
        await asyncio.to_thread(own_postgres.start)
        await ear.until(None)
        await notify(engine, "second")
        await ear.until("second")
    listening.cancel()
    await asyncio.wait([listening])


async def test_a_listener_looks_now_and_then(postgres_url: str) -> None:
    """Without news it looks all the same."""
    ear = Ear()
    listening = asyncio.create_task(
        Listener(target(postgres_url), "news", ear.hear, every=0.01).run()
    )
    for _ in range(3):
        await ear.until(None)
        ear.heard.clear()
    listening.cancel()
    await asyncio.wait([listening])


async def test_one_holds_the_lock(postgres_url: str) -> None:
    """A second one waits until the first lets go, and gives up when told to."""
    first, second = (SessionLock(target(postgres_url), KEY, ttl=60) for _ in range(2))
    async with first.held() as lost:
        with pytest.raises(TimeoutError):
            async with second.held(within=0.5):
                pass
        waiting = asyncio.create_task(hold(second))
        assert not lost.is_set()
    async with asyncio.timeout(SECONDS):
        await waiting


async def hold(lock: SessionLock) -> None:
    async with lock.held():
        pass


async def test_losing_the_lock_is_noticed(own_postgres: PostgresServer) -> None:
    """When the server goes the holder hears of it; one that waits goes on waiting, and has it afterwards."""
    to = target(own_postgres.url)
    async with SessionLock(to, KEY, ttl=5).held() as lost:
        waiting = asyncio.create_task(hold(SessionLock(to, KEY, ttl=5)))
        own_postgres.stop()
        async with asyncio.timeout(SECONDS):
            await lost.wait()
        assert not waiting.done()
        await asyncio.to_thread(own_postgres.start)
        async with asyncio.timeout(SECONDS):
            await waiting


async def test_a_server_that_stands_still_is_noticed(own_postgres: PostgresServer) -> None:
    """No answer in time is a lost lock, though the connection lives."""
    async with SessionLock(target(own_postgres.url), KEY, ttl=1).held() as lost:
        postmaster = psutil.Process(own_postgres.pid)
        frozen = [postmaster, *postmaster.children()]
        for process in frozen:
            process.suspend()
        try:
            async with asyncio.timeout(SECONDS):
                await lost.wait()
        finally:
            for process in frozen:
                process.resume()
