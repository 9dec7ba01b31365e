"""Copies of a service's database: an SQLite file, whatever the engine of the original, and from it to either engine."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa

from services.rpc.errors import FailedPreconditionError, InternalError

_ROWS_AT_ONCE = 5000
_BUSY_SECONDS = 30.0
_MOST_TOLD = 20  # problems of one file
_SCHEMA_TABLE = "alembic_version"  # the migrations' own


def copy_file(source: Path, target: Path) -> None:
    """Copy an SQLite database that others may be writing, as it is at one moment. Neither waits for the other.

    The copy is one file, without a journal beside it.
    """
    if not source.is_file():
        raise FailedPreconditionError(
            f"there is no database {source}", reason="NO_DATABASE", metadata={"path": str(source)}
        )
    try:
        # One step reads one state: writers of a database in WAL mode don't wait for readers.
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=rw", _BUSY_SECONDS, uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")
        target.chmod(0o600)
    except sqlite3.Error as error:
        raise InternalError(f"{source} can't be copied to {target}: {error}") from error


def file_problems(path: Path) -> list[str]:
    """What SQLite itself finds wrong with a file: pages, indexes, constraints, references."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            found = [
                str(row[0])
                for row in connection.execute(f"PRAGMA integrity_check({_MOST_TOLD})")
                if row[0] != "ok"
            ]
            for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
                found.append(f"row {row} of {table} refers to nothing in {parent}")
            return found[:_MOST_TOLD]
    except sqlite3.Error as error:
        return [str(error)]


@contextmanager
def opened(path: Path) -> Iterator[sa.Connection]:
    """A transaction on a file that nobody else uses; it is committed."""
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def row_counts(path: Path) -> dict[str, int]:
    """How many rows each table of a file has, whatever its schema is."""
    with opened(path) as connection:
        return {
            name: connection.scalar(sa.select(sa.func.count()).select_from(sa.table(name))) or 0
            for name in sorted(sa.inspect(connection).get_table_names())
        }


def copy_rows(source: sa.Connection, target: sa.Connection, metadata: sa.MetaData) -> None:
    """Copy all rows of all tables into tables of the same schema, of the same engine or another.

    Args:
        source: in a transaction that sees one state.
        target: in a transaction that writes; its tables have no rows but those of the migrations.
        metadata: the tables, which refer to each other in no circle.
    """
    for table in reversed(metadata.sorted_tables):
        if target.execute(sa.select(table).limit(1)).first() is not None:
            target.execute(table.delete())
    for table in metadata.sorted_tables:
        found = source.execution_options(yield_per=_ROWS_AT_ONCE).execute(sa.select(table))
        for rows in found.mappings().partitions():
            target.execute(table.insert(), [dict(row) for row in rows])
    if target.dialect.name == "postgresql":
        _go_on_counting(target, metadata)


def require_tables(
    connection: sa.Connection, metadata: sa.MetaData, passing: Collection[str]
) -> None:
    """InternalError unless a database has the tables that are copied, and besides only passing ones."""
    there = set(sa.inspect(connection).get_table_names()) - {_SCHEMA_TABLE, *passing}
    if there != set(metadata.tables):
        names = ", ".join(sorted(there ^ set(metadata.tables)))
        raise InternalError(f"tables that are in the database or in the code, not in both: {names}")


def _go_on_counting(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Numbers that Postgres draws itself go on after those that were copied."""
    for table in metadata.sorted_tables:
        for column in table.primary_key.columns:
            if not isinstance(column.type, sa.Integer):
                continue
            drawn = connection.scalar(
                sa.select(sa.func.pg_get_serial_sequence(table.name, column.name))
            )
            highest = connection.scalar(sa.select(sa.func.max(column)))
            if drawn is not None and highest is not None:
                connection.execute(sa.select(sa.func.setval(drawn, highest)))


def differing_counts(told: Mapping[str, int], there: Mapping[str, int]) -> list[str]:
    """Tables that don't have as many rows as was noted."""
    return [
        f"{table} has {there.get(table, 0)} rows, {told.get(table, 0)} were noted"
        for table in sorted({*told, *there})
        if told.get(table, 0) != there.get(table, 0)
    ]
