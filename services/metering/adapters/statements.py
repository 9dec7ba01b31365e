"""Statements for both engines: written once with `?`, and said to each as it understands it.

Three things are said differently to Postgres: `?` (its driver's `%s`), `AMONG ?` with a value of `Among` (any of a
list, which is one value however long it is: each connection keeps the statements that it has prepared), and SQLite's
`CROSS JOIN … ON`, which is a JOIN in this order. Statements hold no `?` but those for values.
"""

import json
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


def run(
    connection: sa.Connection, statement: str, values: Values = ()
) -> sa.CursorResult[*tuple[Any, ...]]:
    """Run a statement, or for a list of tuples once for each."""
    dialect = connection.dialect.name
    given = (
        tuple(value.value(dialect) if isinstance(value, Among) else value for value in values)
        if not isinstance(values, list)
        else values
    )
    return connection.exec_driver_sql(said(statement, dialect), given)
