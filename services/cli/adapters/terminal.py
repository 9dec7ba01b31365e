"""The terminal: results on stdout, everything else on stderr, as tables for people or JSON for programs."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

M = TypeVar("M", bound=Message)

Column = tuple[str, Callable[[M], str]]


def as_dict(message: Message) -> dict[str, Any]:
    """Protobuf JSON with the proto's own field names; every plain field is there, also when empty."""
    found: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return found


def plain_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns that are two spaces apart, for programs that cut."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))] if rows else []
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


class Terminal:
    """Prints results and implements `ports.report.Report`."""

    def __init__(self, *, as_json: bool) -> None:
        """Print JSON instead of tables if `as_json`."""
        self.as_json = as_json
        self._out = Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())
        self._err = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def resources(self, messages: Sequence[M], columns: Sequence[Column[M]], none: str) -> None:
        """Several resources: a JSON array, or a table; `none` is said instead of an empty table."""
        if self.as_json:
            self.json([as_dict(message) for message in messages])
        elif not messages:
            self.say(none)
        else:
            self.table(
                [header for header, _ in columns],
                [[cell(message) for _, cell in columns] for message in messages],
            )

    def resource(self, message: Message, fields: Mapping[str, str]) -> None:
        """One resource: its JSON, or `fields` below each other."""
        if self.as_json:
            self.json(as_dict(message))
            return
        self._print([[label, value] for label, value in fields.items() if value], [])

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table without lines."""
        self._print(rows, headers)

    def _print(self, rows: Sequence[Sequence[str]], headers: Sequence[str]) -> None:
        """On a terminal cells are folded to its width; elsewhere each row is one line, whatever its length."""
        if not self._out.is_terminal:
            sys.stdout.writelines(
                line + "\n" for line in plain_table([headers, *rows] if headers else rows)
            )
            return
        table = Table(box=None, pad_edge=False, show_header=bool(headers), header_style="bold")
        for index in range(len(rows[0]) if rows else 0):
            header = headers[index] if headers else ""
            table.add_column(header, overflow="fold", style="" if headers or index else "bold")
        for row in rows:
            table.add_row(*[Text(cell) for cell in row])
        self._out.print(table)

    def json(self, value: object, indent: int | None = 2) -> None:
        """A value as JSON on stdout; in one line if `indent` is None."""
        sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=False) + "\n")

    def result(self, text: str) -> None:
        """A line of the result; nothing with JSON, which says it all."""
        if not self.as_json:
            self._out.print(Text(text))

    def say(self, text: str) -> None:
        self._err.print(Text(text))

    def begin(self, label: str, total: int, done: int) -> None:
        self.finish()
        if not self._err.is_terminal:
            return
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self._err,
        )
        self._task = self._progress.add_task(label, total=total, completed=done)
        self._progress.start()

    def advance(self, count: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def finish(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
