"""Postgres through SQLAlchemy and psycopg: engine, transactions that say what they are, and its errors as ours.

What a service needs of it: `target`, `open_engine`, `read` and `write`. Writes of a service run one after another over
all its processes, by one advisory lock that ends with the transaction.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
import structlog
import tenacity
from sqlalchemy import event
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from services.rpc.errors import (
    FailedPreconditionError,
    InferplaneError,
    InternalError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.rpc.settings import SettingsError

T = TypeVar("T")
# Asked after the connection was lost in a commit: is what the transaction wrote there? None: can't be told.
Outcome = Callable[[AsyncConnection], Awaitable[bool | None]]

_log = structlog.get_logger(__name__)

_SCHEMES = {"postgresql", "postgres", "postgresql+psycopg"}
_CONNECT_SECONDS = 5
_KEEPALIVES = {  # a peer that vanished without a word is noticed after 11 seconds
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_SESSION = {  # of every connection; a process that froze in a transaction must not hold its locks
    "statement_timeout": "30s",
    "lock_timeout": "15s",
    "idle_in_transaction_session_timeout": "10s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "timezone": "UTC",
}
_PATIENCE_SECONDS = 3.0  # for a server that restarts
_SETTLE_SECONDS = 20.0  # longer than any lock is waited for

_AGAIN = {"40001", "40P01"}  # serialization failure, deadlock
_GONE = {"57P01", "57P02", "57P03", "57P05", "25P03"}  # shut down, crashed, starting, timeouts
_SLOW = {"57014", "55P03"}  # statement and lock timeouts
_REFUSED = {"28000", "28P01", "3D000", "42501"}  # who, password, which database, rights


@dataclass(frozen=True, slots=True)
class Target:
    """A database and how it is reached."""

    url: sa.URL  # without its password
    password_file: Path | None
    service: str  # the server's views show it

    def parameters(self, **session: str) -> dict[str, Any]:
        """What psycopg connects with; the password is read anew, so that it may be replaced. Blocks."""
        dialect: Any = PGDialect_psycopg  # its methods have no types
        _, given = dialect().create_connect_args(self.url)
        settings = " ".join(f"-c {name}={value}" for name, value in {**_SESSION, **session}.items())
        password = {} if self.password_file is None else {"password": self._password()}
        return {
            "application_name": f"inferplane-{self.service}",
            "connect_timeout": _CONNECT_SECONDS,
            **_KEEPALIVES,
            **given,
            **password,
            "options": f"{given.get('options', '')} {settings}".strip(),
        }

    def _password(self) -> str:
        assert self.password_file is not None
        try:
            return self.password_file.read_text().strip()
        except OSError as error:
            raise FailedPreconditionError(
                f"INFERPLANE_STORE_PASSWORD_FILE={str(self.password_file)!r}: {error.strerror}",
                reason="PASSWORD_UNREADABLE",
            ) from error


def target(url: str, password_file: Path | None, service: str) -> Target | None:
    """The Postgres database that a setting names; None if it names none. SettingsError if it holds a password."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        return None
    if parsed.drivername not in _SCHEMES:
        return None
    if parsed.password is not None:
        raise SettingsError(
            "INFERPLANE_STORE_URL holds a password, which lists of processes would show; put it into a"
            " file and name that in INFERPLANE_STORE_PASSWORD_FILE"
        )
    if not parsed.database:
        raise SettingsError(
            f"INFERPLANE_STORE_URL={url!r}: names no database; expected: postgresql://user@host:port/database"
        )
    return Target(parsed.set(drivername="postgresql+psycopg"), password_file, service)


def lock_key(service: str, purpose: str) -> int:
    """The number of an advisory lock of a service's database."""
    digest = hashlib.sha256(f"inferplane {service} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def open_engine(to: Target, *, connections: int = 20) -> AsyncEngine:
    """An engine that has no connection yet."""
    engine = create_async_engine(
        to.url,
        pool_size=min(5, connections),
        max_overflow=max(0, connections - 5),
        pool_timeout=10,
        pool_use_lifo=True,
        use_native_hstore=False,  # it would cost a query
    )
    prepare_engine(engine.sync_engine, to)
    return engine


def open_blocking_engine(to: Target, **session: str) -> sa.Engine:
    """The same for work in threads; `session` has settings of the server that differ from the usual ones."""
    engine = sa.create_engine(to.url, pool_size=1, pool_timeout=10, use_native_hstore=False)
    prepare_engine(engine, to, **session)
    return engine


def prepare_engine(engine: sa.Engine, to: Target, **session: str) -> None:
    """Have the engine connect as the target says."""

    @event.listens_for(engine, "do_connect")
    def connecting(
        _dialect: object, _record: object, _arguments: object, parameters: dict[str, Any]
    ) -> None:
        parameters.update(to.parameters(**session))


@contextmanager
def translated(service: str) -> Iterator[None]:
    """Turn the errors of a service's database into ours."""
    try:
        yield
    except (SQLAlchemyError, psycopg.Error) as error:
        raise _ours(service, error) from error


def _ours(service: str, error: SQLAlchemyError | psycopg.Error) -> InferplaneError:
    code, text = sqlstate(error), _text(error)
    if code is not None and code.startswith("53"):
        if code == "53100":
            return ResourceExhaustedError(
                f"the disk with the {service}'s database is full; nothing was changed",
                reason="DISK_FULL",
            )
        return UnavailableError(
            f"the {service}'s database has too much to do: {text}",
            reason="DATABASE_BUSY",
            retry_after=1.0,
        )
    if code in _AGAIN or code in _SLOW or isinstance(error, PoolTimeoutError):
        return UnavailableError(
            f"the {service}'s database is slow; nothing was changed, try again",
            reason="DATABASE_SLOW",
            retry_after=1.0,
        )
    if code in _REFUSED:
        return UnavailableError(
            f"the {service}'s database refuses this process: {text}",
            reason="DATABASE_REFUSED",
            retry_after=5.0,
        )
    if is_lost(error) or code == "25006":  # 25006: a server that takes no writes
        return UnavailableError(
            f"the {service}'s database can't be reached: {text}",
            reason="DATABASE_UNAVAILABLE",
            retry_after=1.0,
        )
    return InternalError(f"the {service}'s database failed: {text}")


def _text(error: SQLAlchemyError | psycopg.Error) -> str:
    origin = error.orig if isinstance(error, DBAPIError) else error
    return str(origin).strip().replace("\n", "; ")


def sqlstate(error: BaseException) -> str | None:
    """The code that the server gave; None if it said nothing."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return origin.sqlstate if isinstance(origin, psycopg.Error) else None


def is_lost(error: BaseException) -> bool:
    """Whether the error means that the connection is gone, or never was."""
    code = sqlstate(error)
    if code is not None:
        return code in _GONE or code.startswith("08")
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or isinstance(error.orig, psycopg.OperationalError)
    return isinstance(error, psycopg.OperationalError)


def _may_run_again(error: BaseException) -> bool:
    known = isinstance(error, DBAPIError | psycopg.OperationalError)
    return known and (is_lost(error) or sqlstate(error) in _AGAIN)


async def retried(attempt: Callable[[], Awaitable[T]]) -> T:
    """Make an attempt, again if the connection was lost or others were in its way, for three seconds at most.

    Args:
        attempt: whole transactions of this module, which raise those errors only if nothing was committed.
    """
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(_may_run_again),
        wait=tenacity.wait_random_exponential(multiplier=0.05, max=0.5),
        stop=tenacity.stop_after_delay(_PATIENCE_SECONDS),
        reraise=True,
    )
    return await retrying(attempt)


@asynccontextmanager
async def read_transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection that sees one state; it waits for no writer."""
    async with engine.connect() as plain:
        connection = await plain.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        async with connection.begin():
            yield connection


@asynccontextmanager
async def write_transaction(
    engine: AsyncEngine, lock: int, outcome: Outcome | None = None
) -> AsyncIterator[AsyncConnection]:
    """A connection that alone may write until the block ends, which commits.

    READ COMMITTED on purpose: each statement sees what is committed when it begins. As everybody who writes takes the
    lock first, and it is released only after the commit can be seen, that is one state for the whole block, with the
    work of all writers before. (A stricter level would see the state from before it waited for the lock.)

    A connection lost before the commit was sent: nothing is committed, and the error says so (see `retried`). Lost in
    the midst of the commit: what became of it is found out, under the lock, so that it can't be under way any more.
    If it can't be found out, UnavailableError with reason COMMIT_UNKNOWN.

    Args:
        engine: of `open_engine`.
        lock: of `lock_key`.
        outcome: asked whether the transaction's work is there. By default the server is asked about the transaction's
            number; that answer is wrong if the server crashed in the same moment, lost the transaction and gave
            its number to another. So who can tell by what was written should.
    """
    async with engine.connect() as plain:
        connection = await plain.execution_options(isolation_level="READ COMMITTED")
        async with connection.begin() as transaction:
            number = await _locked(connection, lock)
            yield connection
            try:
                await transaction.commit()
            except DBAPIError as error:
                if not is_lost(error):
                    raise
                if not await _settled(engine, lock, outcome or _by_number(number), error):
                    raise


async def _locked(connection: AsyncConnection, lock: int) -> str:
    taken = sa.text("SELECT pg_advisory_xact_lock(:lock), CAST(pg_current_xact_id() AS text)")
    row = (await connection.execute(taken, {"lock": lock})).one()
    return str(row[1])


def _by_number(number: str) -> Outcome:
    async def ask(connection: AsyncConnection) -> bool | None:
        wanted = sa.text("SELECT pg_xact_status(CAST(:number AS xid8))")
        try:
            status = await connection.scalar(wanted, {"number": number})
        except DBAPIError as error:
            if sqlstate(error) == "22023":  # in the future: the server has never heard of it
                return False
            raise
        return None if status is None else bool(status == "committed")

    return ask


async def _settled(engine: AsyncEngine, lock: int, outcome: Outcome, lost: DBAPIError) -> bool:
    """Whether the transaction was committed whose connection was lost in the commit."""
    _log.warning("connection lost during a commit, asking what became of it", error=_text(lost))
    # Also no free connection, or a password that can't be read: none of them says that nothing was committed.
    unanswered = (SQLAlchemyError, InferplaneError)
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(unanswered),
        wait=tenacity.wait_random_exponential(multiplier=0.05, max=0.5),
        stop=tenacity.stop_after_delay(_SETTLE_SECONDS),
        reraise=True,
    )

    async def ask() -> bool | None:
        async with engine.connect() as connection, connection.begin():
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(lock)))
            return await outcome(connection)

    try:
        found: bool | None = await retrying(ask)
    except unanswered:
        found = None
    _log.warning("commit settled", committed=found)
    if found is None:
        raise UnavailableError(
            "the connection to the database was lost during the commit, and whether it was done can't be"
            " found out now; look before trying again",
            reason="COMMIT_UNKNOWN",
            retry_after=1.0,
        ) from lost
    return found


async def read(engine: AsyncEngine, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    """Run `work` on one state; again, on a newer one, if the connection is lost."""

    async def attempt() -> T:
        async with read_transaction(engine) as connection:
            return await work(connection)

    return await retried(attempt)


async def write(
    engine: AsyncEngine,
    work: Callable[[AsyncConnection], Awaitable[T]],
    lock: int,
    outcome: Outcome | None = None,
) -> T:
    """Run `work` alone and commit what it changed; again, from its beginning, if nothing was committed."""

    async def attempt() -> T:
        async with write_transaction(engine, lock, outcome) as connection:
            return await work(connection)

    return await retried(attempt)


async def migrated(
    engine: AsyncEngine, lock: int, migrate: Callable[[sa.Connection], None]
) -> None:
    """Bring the schema up to date; of any number of processes that begin at once one does it, the others wait."""

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
        await connection.run_sync(migrate)

    while True:
        try:
            return await write(engine, work, lock)
        except DBAPIError as error:
            # 55P03: another process is at it for longer than a lock is waited for.
            if sqlstate(error) != "55P03":
                raise
