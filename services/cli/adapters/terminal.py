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
        grid = Table.grid(padding=(0, 2))
        for label, value in fields.items():
            if value:
                grid.add_row(Text(label, style="bold"), Text(value))
        self._out.print(grid)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A plain table without lines, easy to cut."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for header in headers:
            table.add_column(header, no_wrap=not sys.stdout.isatty())
        for row in rows:
            table.add_row(*[Text(cell) for cell in row])
        self._out.print(table)

    def json(self, value: object) -> None:
        """A value as JSON on stdout."""
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

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
