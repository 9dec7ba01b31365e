"""Tables as CSV and Parquet files."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.parquet

from services.metering.domain.export import Format, Holds, TableColumn
from services.metering.domain.money import PLACES, format_amount

_TYPES = {
    Holds.TEXT: pa.string(),
    Holds.INTEGER: pa.int64(),
    Holds.DECIMAL: pa.decimal128(38, PLACES),
    Holds.TIME: pa.timestamp("us", tz="UTC"),
}
_EXACT = Context(prec=60)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A spreadsheet takes what begins so for a formula (CWE-1236); with an apostrophe before it, for text.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def open_table(columns: Sequence[TableColumn], kind: Format) -> "CsvTable | ParquetTable":
    """A table in this format."""
    return CsvTable(columns) if kind is Format.CSV else ParquetTable(columns)


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


class ParquetTable:
    """A TableWriter: each page is a row group, compressed with zstd."""

    def __init__(self, columns: Sequence[TableColumn]) -> None:
        self._schema = pa.schema([(column.name, _TYPES[column.holds]) for column in columns])
        self._columns = columns
        self._pieces = _Pieces()
        sink = pa.PythonFile(self._pieces, mode="w")
        self._writer = pyarrow.parquet.ParquetWriter(sink, self._schema, compression="zstd")

    def write(self, lines: Sequence[Sequence[object]]) -> bytes:
        if lines:
            values = zip(*lines, strict=True)
            arrays = [
                _array(column, told) for column, told in zip(self._columns, values, strict=True)
            ]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        return self._pieces.taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._pieces.taken()


def _array(column: TableColumn, values: Sequence[object]) -> pa.Array:
    if column.holds is Holds.DECIMAL:
        values = [None if value is None else _decimal(value) for value in values]
    return pa.array(values, type=_TYPES[column.holds])


def _decimal(value: object) -> Decimal:
    assert isinstance(value, int)
    return Decimal(value).scaleb(-PLACES, _EXACT)


class _Pieces(io.RawIOBase):
    """A file that is taken away piece by piece, as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: object) -> int:
        """Take a piece."""
        data = bytes(memoryview(piece))  # type: ignore[arg-type] # Arrow's buffers are such
        self._pieces.append(data)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def taken(self) -> bytes:
        """What was written since it was asked last."""
        piece, self._pieces = b"".join(self._pieces), []
        return piece
