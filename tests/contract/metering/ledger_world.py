"""A ledger in a database file, with what tests do to it and ask of it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import sqlalchemy as sa

from services.metering.adapters.database import Database
from services.metering.adapters.sql_ledger import SqlLedger
from services.metering.adapters.sql_prices import SqlPrices
from services.metering.adapters.sql_reports import SqlReports
from services.metering.adapters.sql_usage import SqlUsage
from services.metering.adapters.statements import run
from services.metering.domain.charge import Tariff
from services.metering.domain.sums import SUMS
from services.metering.domain.unit import Unit
from services.metering.domain.usage import Outcome, UsageBatch
from services.metering.drivers.price_list import PriceInput, PriceList
from services.metering.ports.usage_store import Recorded
from services.rpc.errors import NotFoundError
from services.rpc.names import ProjectName
from services.rpc.postgres import Target
from services.rpc.sqlite import open_engine
from tests.manual_clock import ManualClock

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
CHARGED = frozenset({Outcome.OK, Outcome.CANCELLED, Outcome.DEADLINE})


class KnownProjects:
    """There are these."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)

    async def get(self, name: ProjectName) -> object:
        if name.project not in self.names:
            raise NotFoundError(f"{name} does not exist", metadata={"resource": str(name)})
        return name


KNOWN = KnownProjects("acme", "other")


class LedgerWorld:
    """Its parts, and shorter words for what tests do."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        self.database = database
        self.clock = clock
        self.usage = SqlUsage(database, clock)
        self.ledger = SqlLedger(database)
        self.reports = SqlReports(database)
        self.prices = PriceList(SqlPrices(database), KNOWN, clock)

    async def record(self, batch: UsageBatch) -> Recorded:
        return await self.usage.record(batch, lambda: Tariff(self.prices.book, CHARGED))

    async def price(self, unit: Unit, amount: str, **scope: str) -> None:
        await self.prices.create(
            PriceInput(
                unit=unit,
                amount=amount,
                project=scope.get("project", ""),
                model=scope.get("model", ""),
                version=scope.get("version", ""),
                valid_from=datetime.fromisoformat(
                    scope.get("valid_from", "2020-01-01T00:00+00:00")
                ),
            )
        )

    async def totals(self) -> dict[str, int]:
        """Sums of all hours, shadows too."""
        rows = await self.sql(
            f"SELECT {', '.join(f'sum({name})' for name in SUMS)} FROM usage_rollups WHERE grain = 1"
        )
        return {name: int(str(value or 0)) for name, value in zip(SUMS, rows[0], strict=True)}

    async def problems(self) -> list[str]:
        found = await self.ledger.verify(0, b"")
        return [f"{p.reason} {p.subject}: {p.description}" for p in found.problems]

    async def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        def work(connection: sa.Connection) -> list[tuple[object, ...]]:
            return [tuple(row) for row in run(connection, statement, values)]

        return await self.database.read(lambda connection: connection.run_sync(work))


@asynccontextmanager
async def opened(
    ledger: Path | Target, clock: ManualClock | None = None
) -> AsyncIterator[LedgerWorld]:
    """The ledger in this file or database, which is up to date."""
    if clock is None:
        clock = ManualClock()
        clock.set_wall(NOW)
    async with AsyncExitStack() as stack:
        if isinstance(ledger, Path):
            engine = open_engine(ledger)
            stack.push_async_callback(engine.dispose)
            database = Database(engine)
        else:
            database = await stack.enter_async_context(Database.open(ledger))
        world = LedgerWorld(database, clock)
        await world.prices.load()
        yield world


@lru_cache
def empty_ledger() -> bytes:
    """A new database's file; made once, as migrations take longer than most tests."""
    with ThreadPoolExecutor(1) as thread:  # also where a loop runs already
        return thread.submit(_empty_ledger).result()


def _empty_ledger() -> bytes:

    async def make(path: Path) -> None:
        async with Database.open(path):
            pass

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metering.db"
        asyncio.run(make(path))
        return path.read_bytes()


def new_ledger(folder: Path) -> Path:
    """The path of an empty ledger in this folder."""
    path = folder / "metering.db"
    path.write_bytes(empty_ledger())
    return path
