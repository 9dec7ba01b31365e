"""Statements for both engines: written once with `?`, and said to each as it understands it.

Three things are said differently to Postgres: `?` (its driver's `%s`), `AMONG ?` with a value of `Among` (any of a
list, which is one value however long it is: each connection keeps the statements that it has prepared), and SQLite's
`CROSS JOIN … ON`, which is a JOIN in this order. Statements hold no `?` but those for values.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import sqlalchemy as sa

POSTGRES = "postgresql"
Values: TypeAlias = Sequence[object] | Sequence[Sequence[object]]  # of one run, or of many


class Among:
    """A list of numbers or words, for `AMONG ?`."""

    __slots__ = ("_wanted",)

    def __init__(self, wanted: Sequence[int] | Sequence[str]) -> None:
        self._wanted = list(wanted)

    def value(self, dialect: str) -> object:
        """As the engine takes it."""
        return self._wanted if dialect == POSTGRES else json.dumps(self._wanted)


@lru_cache(maxsize=1024)
def said(statement: str, dialect: str) -> str:
    """The statement as the engine understands it."""
    if dialect != POSTGRES:
        return statement.replace("AMONG ?", "IN (SELECT value FROM json_each(?))")
    return (
        statement.replace("%", "%%")
        .replace("AMONG ?", "= ANY(?)")
        .replace("CROSS JOIN", "JOIN")
        .replace("?", "%s")
    )


# An INSERT of values, what comes before them and what comes after.
_INSERT = re.compile(r"(INSERT INTO \w+ \([^)]*\)) VALUES \((?:\?, )*\?\)(.*)", re.DOTALL)


def run(
    connection: sa.Connection, statement: str, values: Values = ()
) -> sa.CursorResult[*tuple[Any, ...]]:
    """Run a statement with a tuple of values, or for a list of tuples once for each.

    Many rows of an INSERT go to Postgres as one statement, in their order, so no two may be one to its ON CONFLICT.
    """
    dialect = connection.dialect.name
    if isinstance(values, list):
        if dialect == POSTGRES and len(values) > 1 and (insert := _INSERT.fullmatch(statement)):
            return _insert(connection, insert, values)
        return connection.exec_driver_sql(said(statement, dialect), values)
    given = tuple(value.value(dialect) if isinstance(value, Among) else value for value in values)
    return connection.exec_driver_sql(said(statement, dialect), given)


def _insert(
    connection: sa.Connection, insert: re.Match[str], rows: Sequence[Sequence[object]]
) -> sa.CursorResult[*tuple[Any, ...]]:
    arrays = [_array(column) for column in zip(*rows, strict=True)]
    columns = ", ".join(f"%s::{kind}[]" for kind, _ in arrays)
    statement = f"{insert[1]} SELECT * FROM unnest({columns}){insert[2]}"  # noqa: S608
    return connection.exec_driver_sql(statement, tuple(text for _, text in arrays))


def _array(values: Sequence[Any]) -> tuple[str, str]:
    """The type of a column's values, and all of them as Postgres reads arrays."""
    match values[0]:
        case int():
            kind, texts = "bigint", (f"{value:d}" for value in values)
        case bytes():
            kind, texts = "bytea", (f'"\\\\x{value.hex()}"' for value in values)
        case _:
            kind, texts = "text", (_quoted(value) for value in values)
    return kind, f"{{{','.join(texts)}}}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
