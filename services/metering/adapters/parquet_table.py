"""Tables as Parquet files."""

import io
from collections.abc import Sequence
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.parquet

from services.metering.domain.export import Holds, TableColumn
from services.metering.domain.money import PLACES

_TYPES = {
    Holds.TEXT: pa.string(),
    Holds.INTEGER: pa.int64(),
    Holds.DECIMAL: pa.decimal128(38, PLACES),
    Holds.TIME: pa.timestamp("us", tz="UTC"),
}
_EXACT = Context(prec=60)


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
