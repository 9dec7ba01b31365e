"""Writes tables as files, piece by piece."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from services.metering.domain.export import Format, TableColumn


class TableWriter(Protocol):
    """One file. Its pieces, one after the other, are the file."""

    def write(self, lines: Sequence[Sequence[object]]) -> bytes:
        """The next piece: so many more lines; may be empty."""
        ...

    def end(self) -> bytes:
        """The last piece."""
        ...


MakeTable: TypeAlias = Callable[[Sequence[TableColumn], Format], TableWriter]
