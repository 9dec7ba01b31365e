"""What a new SQLite file gets at once, instead of one migration after the other: what those have made, as SQL.

It lies beside the migrations (`schema.py` writes it); for a release that has newer ones it counts as not there.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

FILE = "newest.sql"
_MADE = (
    "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    " ORDER BY rowid"
)


def make(connection: Connection, path: Path, newest: str | None) -> bool:
    """Make everything in an empty SQLite database; False if it is no such, or the file is of another migration."""
    if connection.dialect.name != "sqlite" or not path.is_file():
        return False
    statements = list(_statements(path.read_text()))
    if statements[-1:] != [_noted(newest)] or sa.inspect(connection).get_table_names():
        return False
    for statement in statements:
        connection.exec_driver_sql(statement)
    return True


def text_of(connection: Connection, newest: str) -> str:
    """What the file is to hold, of an SQLite database that the migrations have made."""
    made = [f"{sql};\n" for sql in connection.exec_driver_sql(_MADE).scalars()]
    return "\n".join([*made, f"{_noted(newest)}\n"])


def _noted(revision: str | None) -> str:
    """The last statement: which migration the others are the result of."""
    return f"INSERT INTO alembic_version VALUES ('{revision}');"  # noqa: S608 - a word of ours


def _statements(text: str) -> Iterator[str]:
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
