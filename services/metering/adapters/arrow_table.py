"""Tables as CSV and Parquet files, written by Arrow."""

from collections.abc import Sequence
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
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


class _Pieces:
    """A file that is taken away piece by piece, as Arrow writes it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._written = 0
        self.closed = False

    def write(self, piece: object) -> int:
        """Take a piece."""
        data = bytes(memoryview(piece))  # type: ignore[arg-type] # Arrow's buffers are such
        self._pieces.append(data)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        """How much was written."""
        return self._written

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """No more comes."""
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def taken(self) -> bytes:
        """What was written since it was asked last."""
        piece, self._pieces = b"".join(self._pieces), []
        return piece


class ArrowTable:
    """A TableWriter."""

    def __init__(self, columns: Sequence[TableColumn], kind: Format) -> None:
        self._columns = columns
        self._kind = kind
        self._pieces = _Pieces()
        self._sink = pa.PythonFile(self._pieces, mode="w")
        schema = pa.schema([(column.name, self._type(column)) for column in columns])
        if kind is Format.PARQUET:
            self._writer = pyarrow.parquet.ParquetWriter(self._sink, schema, compression="zstd")
        else:
            options = pyarrow.csv.WriteOptions(quoting_style="needed")
            self._writer = pyarrow.csv.CSVWriter(self._sink, schema, write_options=options)

    def _type(self, column: TableColumn) -> pa.DataType:
        if self._kind is Format.CSV and column.holds in {Holds.TIME, Holds.DECIMAL}:
            return pa.string()
        return _TYPES[column.holds]

    def write(self, lines: Sequence[Sequence[object]]) -> bytes:
        if lines:
            values = zip(*lines, strict=True)
            arrays = [
                self._array(column, told)
                for column, told in zip(self._columns, values, strict=True)
            ]
            names = [column.name for column in self._columns]
            self._writer.write_table(pa.Table.from_arrays(arrays, names=names))
        return self._pieces.taken()

    def _array(self, column: TableColumn, values: Sequence[object]) -> pa.Array:
        if column.holds is Holds.DECIMAL:
            # In CSV as plain digits; Arrow's own form of small ones has an exponent.
            write = _text if self._kind is Format.CSV else _decimal
            told = [None if value is None else write(value) for value in values]
            return pa.array(told, type=self._type(column))
        array = pa.array(values, type=_TYPES[column.holds])
        if self._kind is Format.CSV and column.holds is Holds.TIME:
            # RFC 3339; Arrow's own form has a space in it.
            whole = array.cast(pa.timestamp("s", tz="UTC"), safe=False)
            return pyarrow.compute.strftime(whole, format="%Y-%m-%dT%H:%M:%SZ")
        return array

    def end(self) -> bytes:
        self._writer.close()
        self._sink.flush()
        return self._pieces.taken()


def _text(value: object) -> str:
    assert isinstance(value, int)
    return format_amount(value)


def _decimal(value: object) -> Decimal:
    assert isinstance(value, int)
    return Decimal(value).scaleb(-PLACES, _EXACT)
