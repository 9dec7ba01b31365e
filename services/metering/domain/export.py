"""Exports: which tables there are, and what their columns hold."""

from dataclasses import dataclass
from enum import Enum, IntEnum


class Content(IntEnum):
    """What a table has a line for."""

    REQUESTS = 1
    HOURS = 2
    FOCUS = 3


class Format(IntEnum):
    """How a table is written."""

    CSV = 1
    PARQUET = 2


class Holds(Enum):
    """What a column holds; any may be empty."""

    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"  # given as a whole number of 10^-12
    TIME = "time"  # given as microseconds since 1970


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column."""

    name: str
    holds: Holds


def columns(holds: Holds, *names: str) -> tuple[TableColumn, ...]:
    """Columns that hold the same."""
    return tuple(TableColumn(name, holds) for name in names)
