"""Tables as files: CSV here, Parquet beside it."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from services.metering.domain.export import Format, Holds, TableColumn
from services.metering.domain.money import format_amount

if TYPE_CHECKING:
    from services.metering.adapters.parquet_table import ParquetTable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A spreadsheet takes what begins so for a formula (CWE-1236); with an apostrophe before it, for text.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def open_table(columns: Sequence[TableColumn], kind: Format) -> "CsvTable | ParquetTable":
    """A table in this format. Blocks while the first one is made."""
    if kind is Format.CSV:
        return CsvTable(columns)
    # Arrow takes its time to import, and most meterings never need it.
    from services.metering.adapters.parquet_table import ParquetTable

    return ParquetTable(columns)


class CsvTable:
    """A TableWriter: RFC 4180, decimals as plain digits, times as RFC 3339, no text that is a formula."""

    def __init__(self, columns: Sequence[TableColumn]) -> None:
        self._writes = [_TEXTS[column.holds] for column in columns]
        self._file = io.StringIO(newline="")
        self._writer = csv.writer(self._file, lineterminator="\r\n")
        self._writer.writerow([column.name for column in columns])

    def write(self, lines: Sequence[Sequence[object]]) -> bytes:
        writes = self._writes
        self._writer.writerows(
            [
                None if value is None else write(value)
                for write, value in zip(writes, line, strict=True)
            ]
            for line in lines
        )
        return self._taken()

    def end(self) -> bytes:
        return self._taken()

    def _taken(self) -> bytes:
        piece = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return piece.encode()


def _text(value: object) -> str:
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULAS) else text


def _amount(value: object) -> str:
    assert isinstance(value, int)
    return format_amount(value)


def _time(value: object) -> str:
    assert isinstance(value, int)
    return (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat() + "Z"


_TEXTS: Mapping[Holds, Callable[[object], str]] = {
    Holds.TEXT: _text,
    Holds.INTEGER: str,
    Holds.DECIMAL: _amount,
    Holds.TIME: _time,
}
