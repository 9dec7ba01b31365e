"""A service's store as a backup sees it: its copy, whether anything is in it, and a copy put in its place."""

import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from alembic.runtime.migration import MigrationContext

from services.rpc.database_copy import copy_file, copy_rows, opened, require_tables
from services.rpc.errors import FailedPreconditionError
from services.rpc.postgres import Target, lock_key, open_blocking_engine, translated
from services.rpc.secret_file import sync_folder

Migrate = Callable[[sa.Connection], None]

# Copying takes as long as it takes; who else wants a lock meanwhile is not kept waiting by one that is idle.
_UNBOUNDED = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCopy:
    """The database of one service, on either engine."""

    service: str
    file: Path | None  # SQLite's
    target: Target | None  # Postgres's
    lock: str  # what the service's processes hold on Postgres while they write
    metadata: sa.MetaData
    migrate: Migrate  # to this release's schema
    telling: Collection[str]  # tables that have rows if anything was ever stored
    passing: Collection[
        str
    ] = ()  # tables by which running processes find each other: nothing to keep

    @property
    def engine(self) -> str:
        """Its name for people."""
        return "sqlite" if self.file else "postgresql"

    @property
    def where(self) -> str:
        """Its place for people; a password is not shown."""
        return str(self.file if self.target is None else self.target.url)

    def save(self, target: Path) -> None:
        """Copy it into a new SQLite file, as it is at one moment, while others may write."""
        if self.file is not None:
            copy_file(self.file, target)
            return
        with opened(target) as copy:
            self.migrate(copy)
            with self._connected("REPEATABLE READ") as connection:
                self._require_schema(connection, schema_of(copy))
                require_tables(connection, self.metadata, self.passing)
                copy_rows(connection, copy, self.metadata)

    def require_empty(self) -> None:
        """FailedPreconditionError if there is anything that a restore would write over."""
        if self.file is not None:
            if self.file.exists():
                raise self._not_empty()
            return
        with self._connected("REPEATABLE READ") as connection:
            self._require_empty(connection)

    def load(self, source: Path, prepare: Migrate | None = None) -> None:
        """Put a copy in the place of the empty store: all of it or nothing.

        Args:
            source: what `save` made, by this release or an older one.
            prepare: changes what was read before it is put in place.
        """
        folder = self.file.parent if self.file is not None else None
        with tempfile.TemporaryDirectory(prefix=".restoring-", dir=folder) as place:
            fresh = Path(place) / "fresh.db"
            copy_file(source, fresh)
            with opened(fresh) as connection:
                self.migrate(connection)
                if prepare is not None:
                    prepare(connection)
            if self.file is not None:
                self._put(fresh, self.file)
            else:
                self._fill(fresh)

    @contextmanager
    def _connected(self, isolation: str) -> Iterator[sa.Connection]:
        """A transaction on Postgres; all of it is committed, or nothing."""
        assert self.target is not None
        engine = open_blocking_engine(self.target, **_UNBOUNDED)
        try:
            with translated(self.service), engine.connect() as plain:
                connection = plain.execution_options(isolation_level=isolation)
                with connection.begin():
                    yield connection
        finally:
            engine.dispose()

    def _put(self, fresh: Path, file: Path) -> None:
        fresh.chmod(0o600)
        with fresh.open("rb") as written:
            os.fsync(written.fileno())
        self.require_empty()
        fresh.rename(file)
        sync_folder(file.parent)

    def _fill(self, fresh: Path) -> None:
        with opened(fresh) as source, self._connected("READ COMMITTED") as target:
            # From here on no process of the service writes; one that starts waits with its migrations.
            target.execute(
                sa.select(sa.func.pg_advisory_xact_lock(lock_key(self.service, self.lock)))
            )
            self._require_empty(target)
            self.migrate(target)
            require_tables(source, self.metadata, self.passing)
            copy_rows(source, target, self.metadata)

    def _require_schema(self, connection: sa.Connection, wanted: str | None) -> None:
        there = schema_of(connection)
        if there != wanted:
            raise FailedPreconditionError(
                f"the {self.service}'s database {self.where} has schema {there or 'none'}, this release"
                f" has {wanted}; back it up by its own release, or start this release's {self.service} on it first",
                reason="OTHER_SCHEMA",
                metadata={"schema": there or "", "wanted": wanted or ""},
            )

    def _require_empty(self, connection: sa.Connection) -> None:
        there = set(sa.inspect(connection).get_table_names())
        for name in self.telling:
            if (
                name in there
                and connection.execute(
                    sa.select(sa.literal(1)).select_from(sa.table(name)).limit(1)
                ).first()
            ):
                raise self._not_empty()

    def _not_empty(self) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"the {self.service} has data at {self.where} already; a backup is restored into an empty"
            " place only: move that away, or name another place",
            reason="NOT_EMPTY",
            metadata={"service": self.service, "place": self.where},
        )


def schema_of(connection: sa.Connection) -> str | None:
    """The migration that a database is at; None: at none."""
    return MigrationContext.configure(connection).get_current_revision()


def schema_of_file(path: Path) -> str | None:
    """The same of an SQLite file."""
    with opened(path) as connection:
        return schema_of(connection)
