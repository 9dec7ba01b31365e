"""SQLite through SQLAlchemy: an engine in WAL mode whose transactions begin when they say, and its errors as ours."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from services.rpc.errors import InternalError, ResourceExhaustedError, UnavailableError

_BUSY_MS = 5000


@contextmanager
def translated(service: str) -> Iterator[None]:
    """Turn the errors of a service's database into ours."""
    try:
        yield
    except OperationalError as error:
        text = str(error.orig)
        if "full" in text:
            raise ResourceExhaustedError(
                f"the disk with the {service}'s database is full; nothing was changed",
                reason="DISK_FULL",
            ) from error
        if "locked" in text or "busy" in text:
            raise UnavailableError(
                f"the {service}'s database is locked by another program; try again",
                reason="DATABASE_LOCKED",
                retry_after=1.0,
            ) from error
        raise InternalError(f"the {service}'s database failed: {text}") from error
    except DatabaseError as error:
        raise InternalError(f"the {service}'s database failed: {error.orig}") from error
    except SQLAlchemyError as error:
        raise InternalError(f"the {service}'s database failed: {error}") from error


def open_engine(path: Path) -> AsyncEngine:
    """An engine on the database file, which is made if it is not there."""
    engine = create_async_engine(sa.URL.create("sqlite+aiosqlite", database=str(path)))

    @event.listens_for(engine.sync_engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        # The driver must not begin transactions on its own: it would do so late, and not for DDL.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",  # a commit that was acknowledged survives a power cut
            f"busy_timeout={_BUSY_MS}",
            "foreign_keys=ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def began(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@asynccontextmanager
async def read_transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection that sees one state; it waits for no writer."""
    async with engine.connect() as connection, connection.begin():
        yield connection


@asynccontextmanager
async def write_transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection that alone may write until the block ends, which commits."""
    async with engine.connect() as plain:
        connection = await plain.execution_options(writes=True)
        async with connection.begin():
            yield connection
